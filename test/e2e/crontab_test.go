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

import (
	"testing"
)

// backup is a container of a CronTab. The cluster's simulated nodes complete its Pods at once.
const backup = "containers: [{name: backup, image: mybackupscript:v9}]"

// cronTabOf returns the manifest of a CronTab with these fields in its spec, and of its Pods.
func cronTabOf(name, spec, pod string) string {
	return "{apiVersion: alpha.ianlewis.org/v1, kind: CronTab, metadata: {name: " + name + "}, spec: {" + spec +
		", jobTemplate: {restartPolicy: Never, " + pod + "}}}"
}

func (e *env) applyCronTab(name, spec, pod string) {
	e.Helper()
	e.apply(cronTabOf(name, spec, pod))
}

// TestWalkthrough7 runs the commands of walkthrough 7.
func TestWalkthrough7(t *testing.T) {
	t.Parallel()
	startEnv(t, "--controllers=crontab").script("walkthrough7_crontab")
}

// TestCronTab has what a simulated API server would not show of the CronTab contract.
func TestCronTab(t *testing.T) {
	t.Parallel()
	startEnv(t, "--controllers=crontab").script("crontab")
}

// createCronTabVictims creates a CronTab, a Job that it controls, and a Job of others.
func createCronTabVictims(e *env) {
	e.Helper()
	e.applyCronTab("x", "schedule: '@yearly'", backup)
	e.kubectl("create job theirs --image=foreign")
	e.kubectl("create job x --image=foreign")
	e.kubectl(`patch job x --type=merge --patch='{"metadata":{"ownerReferences":[{"apiVersion":"alpha.ianlewis.org/v1","kind":"CronTab","name":"x",` +
		`"controller":true,"uid":"'$(kubectl --namespace=` + e.namespace + ` get crontab x --output=jsonpath={.metadata.uid})'"}]}}'`)
}
