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

// rule is a test of one rule of a contract. The sentence begins with the rule's number, which
// hack/verify.sh contract looks for.
type rule struct {
	sentence string
	test     func(*testing.T)
}

// runRules runs the tests of the rules in parallel.
func runRules(t *testing.T, rules []rule) {
	t.Helper()
	for _, rule := range rules {
		t.Run(rule.sentence, func(t *testing.T) {
			t.Parallel()
			rule.test(t)
		})
	}
}

// TestContract checks the Foo contract on a real API server, rule by rule. This runs one rule:
// hack/e2e.sh -run 'TestContract/rule_4'
func TestContract(t *testing.T) {
	t.Parallel()
	runRules(t, []rule{
		{"rule 1: the garbage collector deletes a deleted Foo's Deployment, without a finalizer and without an error", fooIsDeleted},
		{"rule 2: the controller writes nothing for a Foo in foreground deletion", foregroundDeletion},
		{"rule 3: a Deployment that another client creates first is not changed", deploymentExists},
		{"rule 4: the controller reverts drift in the fields that it owns, and no other change", driftIsReverted},
		{"rule 4: kubectl rollout restart works and causes no write", rolloutRestart},
		{"rule 4: the controller adopts a Deployment of the stock sample without a Pod restart", dropIn},
		{"rule 4: the controller adds no container for the image", noContainerForImage},
		{"rule 4: the controller accepts what a policy makes of its writes, and its writes stop", changingPolicy},
		{"rule 4: the controller leaves a label managed-by of another tool", labelOfAnotherTool},
		{"rule 5: the controller never changes a foreign Deployment, and creates its own after the foreign one is deleted", foreignDeployment},
		{"rule 5: a Deployment with the Foo as an owner but not as the controller is foreign too", ownerButNotController},
		{"rule 6: a Foo that is created again waits until the garbage collector has deleted the previous Foo's Deployment", previousFoo},
		{"rule 7: the controller does not repair a terminating Deployment, and creates a new one after its deletion", deploymentIsDeleted},
		{"rule 7: a Deployment that is terminating for longer than its progress deadline makes the Foo stalled", stuckDeletion},
		{"a quota on ReplicaSets makes the Foo stalled", quotaOnReplicaSets},
		{"a Pod Security level that refuses the Pods makes the Foo stalled, and the message says what to do", restrictedNamespace},
		{"rule 8: over a rename there is no moment without an available Pod, and nothing of the Pod template is lost", renamed},
		{"rule 8: over fifty renames under load there is no moment without an available Pod", fiftyRenames},
		{"rule 8: a rename whose rollout never completes leaves the former Deployment serving", renameStalls},
		{"rule 8: a rename whose copied Pod template a policy refuses leaves the former Deployment serving", renameRefusedByPolicy},
		{"rule 8: a rename that is rolled back half-way ends with the former Deployment", renamedBack},
		{"rule 8: with strategy Recreate the Pods of the former Deployment are gone before the new ones start", renameRecreate},
		{"rule 8: a user's copy of the Deployment is left, owner reference included", copyOfDeployment},
		{"rule 8: while both Deployments exist their selectors select the Pods of both", renameSharesSelector},
		{"rule 8: the old Deployment keeps running while the new name is taken", renamedToTaken},
		{"rule 8: two Foos that swap names converge", func(t *testing.T) { rotateNames(t, 2) }},
		{"rule 8: three Foos that rotate names converge", func(t *testing.T) { rotateNames(t, 3) }},
		{"rule 8: five Foos that rotate names converge", func(t *testing.T) { rotateNames(t, 5) }},
		{"rule 9: the current owner keeps the name, and another claimant gets it later", twoClaimants},
		{"rule 10: the controller does not change an orphaned Deployment", orphan},
		{"rule 10: the command of the message has an orphaned Deployment adopted", adoption},
		{"rule 11: a refusal by a quota causes one event, and a change of the Foo a retry", quota},
		{"rule 11: under a quota of one Deployment a rename waits, and the message says why", quotaOfOne},
		{"rule 11: a terminating namespace causes no errors", terminatingNamespace},
		{"rule 12: the controller retries after transient errors, without events or status updates", transientErrors},
		{"rule 13: the status has the observed generation and takes few updates", status},
		{"rule 13: the API server refuses a status of a Foo that was created anew", statusPatch},
		{"rule 15: nothing is written while nothing changes, over resyncs and restarts", steadyState},
		{"rule 20: the controller finishes a running sync before it exits", finishesSync},
		{"rule 20: the controller exits at once on a second signal", secondSignal},
		{"rule 20: the grace period limits the shutdown", gracePeriod},
		{"rule 21: the pauses between repairs grow while another writer undoes them, and the status names that writer", contendingWriter},
		{"rule 21: the pauses between creations grow while another client deletes the Deployment", deletingClient},
		{"rule 21: an autoscaler on the Deployment is such a writer, and one on the Foo works", autoscalerOnDeployment},
		{"rule 24: a status update of a trimmed object changes nothing but the status", statusAlone},
		{"rule 24: the CRD bounds the conditions", boundedConditions},
		{"a Foo with a name of 200 characters gets a shortened label", longName},
	})
}
