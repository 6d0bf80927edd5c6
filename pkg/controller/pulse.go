/*
Copyright The sample-controller Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package controller

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"
)

// stuckAfter is how long a sync may take until its worker counts as stuck. Requests
// end after SyncTimeout: what takes so much longer waits for something else, such as
// a lock that nobody will release.
const stuckAfter = 2 * SyncTimeout

// pulse tells whether any worker still works.
type pulse struct {
	mu sync.Mutex
	// since holds when each sync under way began. A key is with one worker at a
	// time.
	since map[cache.ObjectName]time.Time
}

// began and ended note what a worker does.
func (p *pulse) began(key cache.ObjectName, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.since == nil {
		p.since = map[cache.ObjectName]time.Time{}
	}
	p.since[key] = now
}

func (p *pulse) ended(key cache.ObjectName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.since, key)
}

// stuck returns how many syncs take too long.
func (p *pulse) stuck(now time.Time) (count int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, since := range p.since {
		if now.Sub(since) > stuckAfter {
			count++
		}
	}
	return count
}

// CheckWorkers returns an error if every worker is stuck in one sync.
func (l *Loop) CheckWorkers() error {
	if stuck := l.pulse.stuck(l.options.Clock.Now()); stuck >= l.options.Workers {
		return fmt.Errorf("all %d workers of the %s controller have been in one sync for more than %s", stuck, l.kind, stuckAfter)
	}
	return nil
}

// CheckCaches returns an error until the caches are filled.
func (l *Loop) CheckCaches() error {
	var missing []error
	for _, synced := range l.synced {
		select {
		case <-synced.Done():
		default:
			missing = append(missing, fmt.Errorf("not filled yet: %s", synced.Name()))
		}
	}
	return errors.Join(missing...)
}
