"""A kazoo client of one lock. It reads commands from standard input, one a line, and answers each with one line."""
import os
import sys

from kazoo.client import KazooClient
from kazoo.exceptions import LockTimeout

servers, path, kind = sys.argv[1:4]
client = KazooClient(hosts=servers, timeout=10)
client.start()
# What the package's documentation says to do when other clients use the same path.
patterns = ["-lock-"] if kind == "taught" else ()
lock = client.Lock(path, identifier="kazoo-peer", extra_lock_patterns=patterns)


def say(text):
    print(text, flush=True)


say("ready")
for line in sys.stdin:
    words = line.split()
    try:
        if words[0] == "lock":
            lock.acquire()
            say("locked")
        elif words[0] == "try":
            try:
                lock.acquire(timeout=float(words[1]) / 1000)
                say("locked")
            except LockTimeout:
                say("busy")
        elif words[0] == "unlock":
            lock.release()
            say("unlocked")
        elif words[0] == "hammer":
            for _ in range(int(words[1])):
                lock.acquire()
                os.close(os.open(words[2], os.O_CREAT | os.O_EXCL))
                os.unlink(words[2])
                lock.release()
            say("hammered")
        elif words[0] == "contenders":
            say("contenders " + " ".join(lock.contenders()))
    except Exception as e:
        say("error %r" % e)
client.stop()
