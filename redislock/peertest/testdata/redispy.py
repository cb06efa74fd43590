"""Does what it reads, one command a line, with the lock of redis-py, and answers one line each."""
import sys

import redis
from redis.exceptions import LockError, LockNotOwnedError

client = redis.Redis(host="127.0.0.1", port=int(sys.argv[1]))
held = {}

for line in sys.stdin:
    what, key, *rest = line.split()
    number = float(rest[0]) / 1000 if rest else None
    answer = "no"
    try:
        if what in ("take", "wait"):
            lock = client.lock(key, timeout=number or None, thread_local=False)
            if lock.acquire(blocking=what == "wait", blocking_timeout=30 if what == "wait" else None):
                held[key], answer = lock, "ok"
        elif what == "extend":
            answer = "ok" if held[key].extend(number, replace_ttl=True) else "no"
        elif what == "release":
            held[key].release()
            answer = "ok"
    except (LockNotOwnedError, LockError) as e:
        answer = "no " + type(e).__name__
    print(answer, flush=True)
