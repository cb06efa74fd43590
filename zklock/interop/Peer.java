import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.Participant;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.retry.RetryNTimes;

/** A Curator client of one lock. It reads commands from standard input, one a line, and answers each with one line. */
public class Peer {
    interface Lock {
        boolean lock(long millis) throws Exception; // negative: without a limit
        void unlock() throws Exception;
    }

    static Lock mutex(InterProcessMutex m) {
        return new Lock() {
            public boolean lock(long millis) throws Exception {
                if (millis < 0) {
                    m.acquire();
                    return true;
                }
                return m.acquire(millis, TimeUnit.MILLISECONDS);
            }
            public void unlock() throws Exception { m.release(); }
        };
    }

    static Lock semaphore(InterProcessSemaphoreV2 s) {
        return new Lock() {
            Lease lease;
            public boolean lock(long millis) throws Exception {
                lease = millis < 0 ? s.acquire() : s.acquire(millis, TimeUnit.MILLISECONDS);
                return lease != null;
            }
            public void unlock() throws Exception { s.returnLease(lease); }
        };
    }

    static Lock latch(CuratorFramework client, String path) {
        return new Lock() {
            LeaderLatch latch;
            public boolean lock(long millis) throws Exception {
                latch = new LeaderLatch(client, path, "curator-peer");
                latch.start();
                if (millis < 0) {
                    latch.await();
                    return true;
                }
                if (latch.await(millis, TimeUnit.MILLISECONDS)) {
                    return true;
                }
                latch.close();
                return false;
            }
            public void unlock() throws Exception { latch.close(); }
        };
    }

    public static void main(String[] args) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(args[0], 10000, 5000, new RetryNTimes(10, 200));
        client.start();
        client.blockUntilConnected();
        String path = args[1];
        InterProcessReadWriteLock rw = new InterProcessReadWriteLock(client, path);
        Lock lock;
        switch (args[2]) {
            case "mutex": lock = mutex(new InterProcessMutex(client, path)); break;
            case "read": lock = mutex(rw.readLock()); break;
            case "write": lock = mutex(rw.writeLock()); break;
            case "semaphore": lock = semaphore(new InterProcessSemaphoreV2(client, path, Integer.parseInt(args[3]))); break;
            case "latch": lock = latch(client, path); break;
            default: throw new IllegalArgumentException(args[2]);
        }
        System.out.println("ready");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            String[] words = line.split(" ");
            try {
                switch (words[0]) {
                    case "lock":
                        lock.lock(-1);
                        System.out.println("locked");
                        break;
                    case "try":
                        System.out.println(lock.lock(Long.parseLong(words[1])) ? "locked" : "busy");
                        break;
                    case "unlock":
                        lock.unlock();
                        System.out.println("unlocked");
                        break;
                    case "hammer": { // count, file: nobody else may be inside
                        Path file = Paths.get(words[2]);
                        for (int i = 0; i < Integer.parseInt(words[1]); i++) {
                            lock.lock(-1);
                            Files.createFile(file);
                            Files.delete(file);
                            lock.unlock();
                        }
                        System.out.println("hammered");
                        break;
                    }
                    case "leader": {
                        LeaderLatch observer = new LeaderLatch(client, path, "observer");
                        StringBuilder ids = new StringBuilder();
                        for (Participant p : observer.getParticipants()) {
                            ids.append(" ").append(p.getId()).append(p.isLeader() ? "*" : "");
                        }
                        System.out.println("participants" + ids);
                        break;
                    }
                }
            } catch (Exception e) {
                System.out.println("error " + e);
            }
        }
        client.close();
    }
}
