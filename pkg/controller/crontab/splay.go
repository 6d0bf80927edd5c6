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

package crontab

import (
	"fmt"
	"hash/fnv"
	"time"

	"k8s.io/utils/ptr"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
)

// offsetOf returns how long after it is due each run of the CronTab is started: 0 without
// spec.splaySeconds, otherwise less than that. It follows from the UID, so it is the same in
// each process and for each run.
func offsetOf(cronTab *alphav1.CronTab) time.Duration {
	splay := ptr.Deref(cronTab.Spec.SplaySeconds, 0)
	if splay <= 0 {
		return 0
	}
	hash := fnv.New32a()
	// The error is always nil.
	_, _ = hash.Write([]byte(cronTab.UID))
	return time.Duration(hash.Sum32()%uint32(splay)) * time.Second
}

// describeOffset says how long after it is due a run is started, "" if it is started then.
func describeOffset(cronTab *alphav1.CronTab) string {
	offset := offsetOf(cronTab)
	if offset == 0 {
		return ""
	}
	return fmt.Sprintf("; each run is started %v after it is due", offset)
}
