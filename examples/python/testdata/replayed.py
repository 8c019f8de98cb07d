"""Runs watch.py against scripted streams, without grpc and a daemon.

Each stream is a list of events, and ends as a daemon ends it. The requests are printed before what watch.py prints.
"""

import runpy
import sys
import types


class RpcError(Exception):
    def __init__(self, code):
        self.code, self.details = lambda: code, lambda: "ended: " + code


class Message(types.SimpleNamespace):
    def CopyFrom(self, other):
        self.__dict__.update(other.__dict__)

    SerializeToString = FromString = None


class WatchRequest(Message):
    def __init__(self, **options):
        super().__init__(replay=False, resume_after=Message(), **options)


def event(name, container="", seq=0, replayed=False):
    number = [number for text, number in types_of_events.items() if text == "EVENT_TYPE_" + name]
    return Message(event=Message(
        type=number[0] if number else 99, pod_namespace="shop", pod_name="web", container_name=container,
        container_id=container, reason="", epoch="e", seq=seq, replayed=replayed))


names = ["CONTAINER_STARTED", "CONTAINER_DIED", "CONTAINER_REMOVED", "GAP", "SYNCED", "BOOKMARK"]
types_of_events = {"EVENT_TYPE_" + name: number for number, name in enumerate(names)}
streams = [
    ([event("CONTAINER_STARTED", "a", 1, True)], "UNAVAILABLE"),
    ([event("CONTAINER_STARTED", "b", 2, True), event("SYNCED", "", 2),
      event("CONTAINER_STARTED", "c", 3), event("NEW", "c", 4), event("CONTAINER_DIED", "b", 5),
      event("BOOKMARK", "", 9)], "RESOURCE_EXHAUSTED"),
    ([event("GAP", "", 20), event("CONTAINER_STARTED", "d", 17, True)], None),
    ([event("CONTAINER_STARTED", "f", 18), event("CONTAINER_REMOVED", "d", 19), event("SYNCED", "", 19)], "INTERNAL"),
]


class Channel:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def unary_stream(self, method, **_):
        def call(request, wait_for_ready):
            after = request.resume_after.__dict__
            print("WATCH", method, f"replay={request.replay}", "after", f"{after['epoch']}:{after['seq']}" if after else "nothing")
            events, end = streams.pop(0)
            yield from events
            if end:
                raise RpcError(end)

        return call


def insecure_channel(address, options):
    print("CONNECT", address)
    return Channel()


sys.modules["grpc"] = types.SimpleNamespace(
    RpcError=RpcError, insecure_channel=insecure_channel,
    StatusCode=types.SimpleNamespace(UNAVAILABLE="UNAVAILABLE", RESOURCE_EXHAUSTED="RESOURCE_EXHAUSTED"))
sys.modules["pleg_pb2"] = types.SimpleNamespace(
    EventType=types_of_events, WatchRequest=WatchRequest, WatchResponse=Message, Position=Message)
sys.modules["time"] = types.SimpleNamespace(sleep=lambda _: None)
try:
    runpy.run_path("watch.py", run_name="__main__")
except RpcError as error:
    print("ENDED", error.details())
