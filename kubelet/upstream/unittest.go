package main

// unitTest is what the change adds to the kubelet's own tests.
const unitTest = `// slowRuntime takes a second for the status of a pod. The first status of test-pod-0 takes
// a minute and fails.
type slowRuntime struct {
	*containertest.FakeRuntime
	lock           sync.Mutex
	timedOut       bool
	inFlight, most int
}

func (r *slowRuntime) GetPodStatus(_ context.Context, pod *kubecontainer.Pod) (*kubecontainer.PodStatus, error) {
	r.lock.Lock()
	r.inFlight++
	r.most = max(r.most, r.inFlight)
	hangs := pod.ID == "test-pod-0" && !r.timedOut
	r.timedOut = r.timedOut || hangs
	r.lock.Unlock()

	var err error
	if hangs {
		time.Sleep(time.Minute)
		err = errors.New("timeout")
	} else {
		time.Sleep(time.Second)
	}

	r.lock.Lock()
	defer r.lock.Unlock()
	r.inFlight--
	return &kubecontainer.PodStatus{ID: pod.ID}, err
}

func TestRelistInspectsConcurrently(t *testing.T) {
	for _, tc := range []struct {
		enabled      bool
		wantInFlight int
		wantAtMost   time.Duration
	}{
		{enabled: false, wantInFlight: 1, wantAtMost: 69 * time.Second},
		{enabled: true, wantInFlight: maxInspections, wantAtMost: 62 * time.Second},
	} {
		t.Run(fmt.Sprintf("enabled=%v", tc.enabled), func(t *testing.T) {
			featuregatetesting.SetFeatureGateDuringTest(t, feature.DefaultFeatureGate, features.PLEGConcurrentInspections, tc.enabled)
			synctest.Test(t, func(t *testing.T) {
				tCtx := ktesting.Init(t)
				pods, _, expected := createTestPodsStatusesAndEvents(10)
				runtime := &slowRuntime{FakeRuntime: &containertest.FakeRuntime{}}
				for _, pod := range pods {
					runtime.AllPodList = append(runtime.AllPodList, &containertest.FakePod{Pod: pod})
				}
				pleg := newTestGenericPLEGWithRuntimeMock(runtime)
				ch := pleg.Watch()

				start := time.Now()
				done := make(chan struct{})
				go func() {
					defer close(done)
					pleg.Relist(tCtx)
				}()
				if tc.enabled {
					time.Sleep(10 * time.Second)
					synctest.Wait()
					assert.Len(t, ch, len(pods)-1, "the hung pod must not delay the events of the others")
				}
				<-done
				assert.LessOrEqual(t, time.Since(start), tc.wantAtMost)
				assert.Equal(t, tc.wantInFlight, runtime.most)
				verifyEvents(t, expected[1:], getEventsFromChannel(ch))

				// Only the pod whose inspection failed is inspected again.
				start = time.Now()
				pleg.Relist(tCtx)
				assert.Equal(t, time.Second, time.Since(start))
				verifyEvents(t, expected[:1], getEventsFromChannel(ch))
			})
		})
	}
}

`
