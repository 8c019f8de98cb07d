#!/usr/bin/env python3
"""Prints the events of a node: watch.py SOCKET [EPOCH:SEQ]

It knows which containers run. If the daemon restarts, it resumes after its last event.
At the end it prints the position at which the next call resumes. It needs Debian's python3-grpcio
and python3-protobuf; protobuf-compiler and libprotobuf-dev make the module pleg_pb2 from the .proto:

    protoc --proto_path=api/pleg/v1 --python_out=. pleg.proto
"""

import sys
import time
import grpc
import pleg_pb2 as pleg

NAMES = {number: name.removeprefix("EVENT_TYPE_") for name, number in pleg.EventType.items()}
running = {}  # what this node runs: (pod, container) by container id
position = None  # resuming here misses nothing
known = False  # whether running has the state at the position


def watch(channel):
    """Calls Watch: from the position if there is one, and with the state until it is known."""
    request = pleg.WatchRequest(name="python", omit_sandboxes=True, bookmarks=True)
    if not known:
        request.replay = True
        running.clear()
    if position:
        request.resume_after.CopyFrom(position)
    # What a generated stub does. It needs no plugin of protoc.
    return channel.unary_stream(
        "/pleg.v1.PLEG/Watch",
        request_serializer=pleg.WatchRequest.SerializeToString,
        response_deserializer=pleg.WatchResponse.FromString,
    )(request, wait_for_ready=True)


def apply(event):
    """Applies one event to running and moves the position."""
    global position, known
    name = NAMES.get(event.type, str(event.type))  # a newer daemon may have more types
    pod = f"{event.pod_namespace}/{event.pod_name}"
    if name == "CONTAINER_STARTED":
        running[event.container_id] = (pod, event.container_name)
    elif name in ("CONTAINER_DIED", "CONTAINER_REMOVED"):
        running.pop(event.container_id, None)
    elif name == "GAP":
        running.clear()  # a replay of the present state follows
    known = known or not event.replayed and name != "GAP"
    if known and name != "GAP":  # a GAP is no position: a replay follows
        position = pleg.Position(epoch=event.epoch, seq=event.seq)
    if name == "SYNCED":
        print(f"SYNCED {len(running)} containers run", flush=True)
    elif name != "BOOKMARK":
        print(name, pod, event.container_name, event.reason, flush=True)


def main():
    if len(sys.argv) > 2:
        global position
        epoch, _, seq = sys.argv[2].rpartition(":")
        position = pleg.Position(epoch=epoch, seq=int(seq))
    options = [("grpc.max_reconnect_backoff_ms", 5000)]
    with grpc.insecure_channel("unix://" + sys.argv[1], options=options) as channel:
        while True:
            try:
                for response in watch(channel):
                    apply(response.event)
            except grpc.RpcError as error:
                if error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED):
                    raise
                print("DISCONNECTED", error.details(), flush=True)
            time.sleep(0.5)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        print("POSITION", f"{position.epoch}:{position.seq}" if position else "none")
