p='test/check/fault.go'; s=open(p).read()
s=s.replace('''	kills, executes bool
	// The others''','''	kills, executes bool
	// hangs gives no answer for wait. takesLease gives the lease to another process, and answers this and the
	// following writes with 500 for as long as the lease lasts. replaces makes a user delete and create the object
	// that the request deletes, just before it does.
	hangs, takesLease, replaces bool
	// rare is injected once into each class of request, also if not only a part is.
	rare bool
	// The others''')
s=s.replace('''	// their middle. expires ends the watch with 410: as the next answer or, with inStream, as an event.
''','''	// their middle. expires ends the watch with 410, after wait: as the next answer or, with inStream, as an event.
	// cutsList also cuts the list after it.
''').replace('''	expires, inStream bool
}''','''	expires, inStream bool
	cutsList          bool
}''')
s=s.replace('''		{name: "403", code: http.StatusForbidden, reason: metav1.StatusReasonForbidden},
''','''		{name: "403", code: http.StatusForbidden, reason: metav1.StatusReasonForbidden},
		{name: "hang-60s", hangs: true, wait: time.Minute, rare: true},
		{name: "lease-taken", takesLease: true, rare: true},
		{name: "replaced", replaces: true, executes: true},
''')
s=s.replace('''		{name: "410-event", expires: true, inStream: true},
''','''		{name: "410-event", expires: true, inStream: true},
		{name: "skipped-4s", wait: 4 * time.Second, once: true, expires: true, inStream: true},
		{name: "cut-list", expires: true, inStream: true, cutsList: true},
''')
s=s.replace('''func (f *fault) isOfWatch() bool { return f.wait > 0 ||''','''func (f *fault) isOfWatch() bool { return f.wait > 0 && !f.hangs ||''')
s=s.replace('''	switch {
	case f.code == http.StatusConflict:''','''	switch {
	case f.replaces:
		return r.verb == http.MethodDelete && r.name != ""
	case f.takesLease:
		return r.isWrite()
	case f.code == http.StatusConflict:''')
s=s.replace('''	p.expireNext = f.expires && !f.inStream
	return f
''','''	p.expireNext, p.cutNext = f.expires && !f.inStream, f.cutsList
	return f
''')
s=s.replace('''	if !s.inInitialList && e.Type != watch.Bookmark && !s.inject(ctx, e) {
		return false
	}
''','''	if s.inInitialList && e.Type != watch.Bookmark && s.proxy.takeListCut(s.resource) {
		s.cut(e)
	}
	if !s.inInitialList && e.Type != watch.Bookmark && !s.inject(ctx, e) {
		return false
	}
''')
a=s.index('	switch {\n	case f == nil:'); b=s.index('// write sends data')
s=s[:a]+'''	if f == nil {
		return true
	}
	if f.wait > 0 {
		s.proxy.holding.Add(1)
		pause(ctx, e.receivedAt.Add(f.wait).Sub(s.proxy.cluster.clock.Now()))
		s.proxy.holding.Add(-1)
	}
	if f.cuts > 0 {
		s.cut(e)
	}
	if f.inStream {
		s.write(mustEncode(&watchEvent{Type: watch.Error, Object: newStatus(http.StatusGone, metav1.StatusReasonExpired, "injected by check")}))
	}
	return !f.expires
}

// cut breaks the connection in the middle of the event.
func (s *watchStream) cut(e *watchEvent) {
	data := mustEncode(e)
	s.write(data[:len(data)/2])
	panic(http.ErrAbortHandler)
}

// takeListCut reports whether the list is to be cut.
func (p *proxy) takeListCut(resource string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	cut := p.cutNext && p.target.class == watchClass(resource)
	p.cutNext = p.cutNext && !cut
	return cut
}

'''+s[b:]
open(p,'w').write(s)

p='test/check/proxy.go'; s=open(p).read()
s=s.replace('''	// crash kills the process and starts it again.
	crash func()
''','''	// crash kills the process and starts it again. takeLease gives the lease to another process and returns how long
	// it lasts, and leaseTaken reports whether that one has it. recreate replaces the object of a request.
	crash      func()
	takeLease  func() time.Duration
	leaseTaken func() bool
	recreate   func(*request)
''')
s=s.replace('''	expireNext bool
	cuts       int
''','''	expireNext bool
	cuts       int
	// cutNext is set if the next list of the target is cut.
	cutNext bool
	// lostUntil is until when the lease lasts that another process took.
	lostUntil time.Time
''')
s=s.replace('''	f := p.record(r)
	switch {
	case f == nil || f.executes:
''','''	if p.writesWithoutLease(r) {
		respond(w, http.StatusInternalServerError, metav1.StatusReasonInternalError, "injected by check")
		return
	}
	f := p.record(r)
	switch {
	case f == nil:
	case f.replaces:
		p.recreate(r)
	case f.executes:
	case f.hangs:
		p.holding.Add(1)
		pause(incoming.Context(), f.wait)
		p.holding.Add(-1)
		panic(http.ErrAbortHandler)
	case f.takesLease:
		p.lose(p.takeLease())
		respond(w, http.StatusInternalServerError, metav1.StatusReasonInternalError, "injected by check")
		return
''')
s=s.replace('''	if f != nil && !f.kills {
		p.lag()
	}
''','''	if f != nil && !f.kills && !f.replaces {
		p.lag()
	}
''').replace('''	p.answered(r, response)
	if f != nil {
''','''	p.answered(r, response)
	if f != nil && !f.replaces {
''')
s=s.replace('''// record records the request''','''// lose notes that another process has the lease for so long.
func (p *proxy) lose(lease time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lostUntil = p.cluster.clock.Now().Add(lease)
}

// lost returns until when the lease lasts that the process has lost, the zero time if it has lost none.
func (p *proxy) lost() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lostUntil
}

// writesWithoutLease reports whether another process has the lease. For the duration of the lease the process may
// not have learned that.
func (p *proxy) writesWithoutLease(r *request) bool {
	until := p.lost()
	if until.IsZero() || !r.isWrite() || !p.leaseTaken() {
		return false
	}
	if p.cluster.clock.Now().After(until) {
		p.find("lease", r.class(newAliases(p.namespace, nil).of)+": another process has had the lease for its duration")
	}
	return true
}

// record records the request''')
s=s.replace('''	p.shown, p.watched = map[string]string{}, map[string]bool{}
''','''	p.shown, p.watched, p.lostUntil = map[string]string{}, map[string]bool{}, time.Time{}
''')
s=s.replace('return p.injected && !p.expireNext\n','return p.injected && !p.expireNext && !p.cutNext\n')
s=s.replace('''			p.show(to.Resource, &list.Items[i])
		}
	}
''','''			p.show(to.Resource, &list.Items[i])
		}
		if len(list.Items) > 0 && p.takeListCut(to.Resource) {
			response.body = response.body[:len(response.body)/2]
			response.write(w)
			panic(http.ErrAbortHandler)
		}
	}
''')
open(p,'w').write(s)

p='test/check/run.go'; s=open(p).read()
s=s.replace('''	r.kubeconfig, err = writeKubeconfig''','''	r.proxy.takeLease, r.proxy.leaseTaken = func() time.Duration { return r.takeLease(ctx) }, func() bool { return r.leaseTaken(ctx) }
	r.proxy.recreate = func(request *request) { r.recreate(ctx, request) }
	r.kubeconfig, err = writeKubeconfig''')
s=s.replace('''	byItself := r.process == p && !r.closed
	r.mu.Unlock()
	if byItself {
		r.proxy.find("exit", ''','''	byItself := r.process == p && !r.closed
	r.mu.Unlock()
	if byItself {
		if r.proxy.lost().IsZero() {
			r.proxy.find("exit", ''').replace('''r.lastOutput())
		pause(ctx, time.Second)''','''r.lastOutput())
		}
		pause(ctx, time.Second)''')
s=s.replace('''		if client, _, err := r.check.cluster.at(r.namespace, "coordination.k8s.io/v1", "Lease"); err == nil && !r.check.suite.KeepLease {
			// The next process would wait for the killed one. Without leases it does not.
			_ = client.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
		}
''','''		if !r.check.suite.KeepLease {
			// The next process would wait for the killed one. Without leases it does not.
			_ = r.leases().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
		}
''')
s=s.replace('''// restart kills''','''func (r *run) leases() dynamic.ResourceInterface {
	leases := schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
	return r.check.cluster.client.Resource(leases).Namespace(r.namespace)
}

// thief is the holder of a lease that was taken.
const thief = "check"

// takeLease makes another process the holder of the leases, and returns how long the longest one lasts.
func (r *run) takeLease(ctx context.Context) (longest time.Duration) {
	list, err := r.leases().List(ctx, metav1.ListOptions{})
	if err != nil {
		r.proxy.find("run", err.Error())
		return 0
	}
	for i := range list.Items {
		seconds, _, _ := unstructured.NestedInt64(list.Items[i].Object, "spec", "leaseDurationSeconds")
		longest = max(longest, time.Duration(seconds)*time.Second)
		patch := fmt.Appendf(nil, `{"spec":{"holderIdentity":%q,"renewTime":%q}}`, thief, r.check.cluster.clock.Now().UTC().Format(metav1.RFC3339Micro))
		if _, err := r.leases().Patch(ctx, list.Items[i].GetName(), types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			r.proxy.find("run", err.Error())
		}
	}
	return longest
}

// leaseTaken reports whether a lease has that holder still.
func (r *run) leaseTaken(ctx context.Context) bool {
	list, err := r.leases().List(ctx, metav1.ListOptions{})
	return err == nil && slices.ContainsFunc(list.Items, func(lease unstructured.Unstructured) bool {
		holder, _, _ := unstructured.NestedString(lease.Object, "spec", "holderIdentity")
		return holder == thief
	})
}

// recreate deletes the object that the request is about to delete, and creates it as the controller did.
func (r *run) recreate(ctx context.Context, of *request) {
	client := r.check.cluster.client.Resource(of.GroupVersionResource).Namespace(r.namespace)
	for _, sent := range slices.Backward(r.proxy.recorded(0)) {
		if sent.Resource != of.Resource || sent.made != of.name || sent.body == nil {
			continue
		}
		err := client.Delete(ctx, of.name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0), PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)})
		if err == nil {
			err = poll(ctx, stepTimeout, func(ctx context.Context) error {
				_, err := client.Create(ctx, &unstructured.Unstructured{Object: runtime.DeepCopyJSON(sent.body)}, metav1.CreateOptions{})
				return err
			})
		}
		if err != nil {
			r.proxy.find("run", "replacing "+of.name+": "+err.Error())
		}
		return
	}
}

// restart kills''')
s=s.replace('''	"k8s.io/apimachinery/pkg/types"
''','''	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
''')
s=s.replace('''	closed  bool
}''','''	closed  bool

	// longer is for how long the fault delays the end.
	longer time.Duration
}''')
s=s.replace('	apierrors "k8s.io/apimachinery/pkg/api/errors"\n','')
open(p,'w').write(s)

p='test/check/judge.go'; s=open(p).read()
s=s.replace('''	peak             map[string]int
}

// reference''','''	peak, fewest     map[string]int
}

// reference''').replace('''	peak          map[string]int
	// changed''','''	peak, fewest  map[string]int
	// changed''')
s=s.replace('''	r.proxy.arm(f, at)
''','''	if f != nil {
		r.longer = f.wait
	}
	if f != nil && f.replaces {
		// Others wrote what is there then.
		atEnd = nil
	}
	r.proxy.arm(f, at)
''')
s=s.replace('poll(ctx, restTimeout, func','poll(ctx, restTimeout+r.longer, func')
s=s.replace('''	o.peak = c.peak(o.versions)
}''','''	o.peak, o.fewest = c.peak(o.versions), c.fewest(o.versions, o.prepared)
}''')
s=s.replace('''// learnReference compares''','''// fewest returns how many replicas of each resource were available at least, of those of one owner that existed
// before the operation and still does.
func (c *checker) fewest(versions []version, prepared int) map[string]int {
	live, least := latest(versions[:prepared]), map[string]int{}
	available := func() map[[2]string]int {
		sums := map[[2]string]int{}
		for _, v := range live {
			if by := metav1.GetControllerOf(v.object); by != nil && v.isLive() {
				n, _, _ := unstructured.NestedInt64(v.object.Object, "status", "availableReplicas")
				sums[[2]string{string(by.UID), v.resource}] += int(n)
			}
		}
		return sums
	}
	before := available()
	for of, n := range before {
		if live[types.UID(of[0])].resource == c.owners.Resource && n > 0 {
			least[of[1]] = max(least[of[1]], n)
		}
	}
	later := slices.Clone(versions[prepared:])
	slices.SortStableFunc(later, byRevision)
	for _, v := range later {
		live[v.object.GetUID()] = v
		now := available()
		for of, n := range before {
			if owner := live[types.UID(of[0])]; owner.resource == c.owners.Resource && owner.isLive() && n > 0 {
				least[of[1]] = min(least[of[1]], now[of])
			}
		}
	}
	return least
}

// learnReference compares''')
open(p,'w').write(s)
p='test/check/judge.go'; s=open(p).read()
s=s.replace('''		for resource, n := range o.peak {
			ref.peak[resource] = max(ref.peak[resource], n)
		}
''','''		for resource, n := range o.peak {
			ref.peak[resource] = max(ref.peak[resource], n)
		}
		for resource, n := range o.fewest {
			if least, known := ref.fewest[resource]; !known || n < least {
				ref.fewest[resource] = n
			}
		}
''').replace('peak: map[string]int{}, changed','peak: map[string]int{}, fewest: map[string]int{}, changed')
s=s.replace('''// learnReference compares''','''// judgePeaks adds findings if an owner had more dependents than without the fault, or fewer replicas available.
func (c *checker) judgePeaks(o *outcome, ref *reference) {
	found := func(format string, arguments ...any) {
		o.findings = append(o.findings, finding{Judge: "peak", Message: fmt.Sprintf(format, arguments...)})
	}
	for resource, n := range o.peak {
		if n > ref.peak[resource] && !c.ignored("peak "+resource+" ") {
			found("an owner had %d %s at the same time, and %d without the fault", n, resource, ref.peak[resource])
		}
	}
	for resource, n := range o.fewest {
		if n < ref.fewest[resource] && !c.ignored("fewest "+resource+" ") {
			found("an owner had %d available replicas of %s at least, and %d without the fault", n, resource, ref.fewest[resource])
		}
	}
}

// learnReference compares''')
open(p,'w').write(s)
p='test/check/main.go'; s=open(p).read()
a=s.index('		for resource, n := range o.peak {'); b=s.index('		o.findings = slices.DeleteFunc(o.findings')
s=s[:a]+'		c.judgePeaks(o, ref)\n'+s[b:]
s=s.replace('''		if f.kills && s.Name == endOfNamespace || c.part && c.planned''','''		if f.kills && s.Name == endOfNamespace || (c.part || f.rare) && c.planned''')
s=s.replace('''			if f.appliesTo(p.request) {
				add(f,''','''			if f.appliesTo(p.request) && (c.leases || !f.takesLease) && (!c.part || !f.hangs) {
				add(f,''')
s=s.replace('''	// noWatch is set''','''	// leases is set if the controller takes a lease.
	leases bool
	// noWatch is set''')
open(p,'w').write(s)
p='test/check/suite.go'; s=open(p).read()
s=s.replace('''	for i := range requests {
		track(c.tracked, &requests[i])
	}
''','''	c.leases = r.takeLease(ctx) > 0
	for i := range requests {
		track(c.tracked, &requests[i])
	}
''',1)
open(p,'w').write(s)
