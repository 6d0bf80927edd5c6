//go:build e2e

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

package e2e

import "testing"

// TestContract checks the Foo contract on a real API server, rule by rule. To
// run one: hack/e2e.sh -run 'TestContract/rule_4'
func TestContract(t *testing.T) {
	t.Parallel()
	for _, rule := range []struct {
		sentence string
		test     func(*testing.T)
	}{
		{"rule 1: a deleted Foo takes its Deployment with it, without a finalizer and without an error", fooIsDeleted},
		{"rule 2: a Foo in foreground deletion is left to the garbage collector", foregroundDeletion},
		{"rule 3: a Deployment that appears while ours is being created is not touched", createdMeanwhile},
		{"rule 4: drift in what the controller owns is reverted, all else stays", driftIsReverted},
		{"rule 4: kubectl rollout restart rolls out, and costs no write", rolloutRestart},
		{"rule 4: a Deployment of the stock sample is taken over without a Pod restart", dropIn},
		{"rule 4: no container is added to take the image", noContainerForImage},
		{"rule 5: a foreign Deployment is never touched, and its end wakes the Foo", foreignDeployment},
		{"rule 5: our UID without controller: true is foreign as well", ownerButNotController},
		{"rule 6: a Foo made anew waits for the Deployment of its predecessor to go", predecessor},
		{"rule 7: a Deployment in deletion is not repaired, and created anew when gone", deploymentIsDeleted},
		{"rule 8: renaming creates the new Deployment before it deletes the former", renamed},
		{"rule 8: while the new name is taken the former Deployment keeps running", renamedToTaken},
		{"rule 8: two Foos that swap names converge", func(t *testing.T) { rotation(t, 2) }},
		{"rule 8: three Foos that rotate names converge", func(t *testing.T) { rotation(t, 3) }},
		{"rule 8: five Foos that rotate names converge", func(t *testing.T) { rotation(t, 5) }},
		{"rule 9: the first of two Foos keeps the name, the other takes over", twoAskForOne},
		{"rule 10: an orphaned Deployment stays as it is", orphan},
		{"rule 11: a quota's refusal is told once, and a change of the Foo tries again", quota},
		{"rule 11: under a quota of one a rename waits, and says why", quotaOfOne},
		{"rule 11: a terminating namespace goes quietly", terminatingNamespace},
		{"rule 12: passing failures of the API server are tried again in silence", passingFailures},
		{"rule 13: the status tells of the generation it saw, and costs few writes", status},
		{"rule 15: nothing is written while nothing changes, over resyncs and restarts", steadyState},
		{"rule 20: a running sync is finished before the exit", finishesSync},
		{"rule 20: a second signal exits at once", secondSignal},
		{"rule 20: the grace period is the limit", gracePeriod},
		{"rule 21: a writer that undoes each repair at once is left alone for ever longer, and told", instantRival},
		{"rule 21: so is an autoscaler on the Deployment, and on the Foo it works", autoscalerOnDeployment},
		{"a Foo with a name of 200 characters gets a shortened label", longName},
	} {
		t.Run(rule.sentence, func(t *testing.T) {
			t.Parallel()
			rule.test(t)
		})
	}
}
