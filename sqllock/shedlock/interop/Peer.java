import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.time.Instant;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.provider.jdbctemplate.JdbcTemplateLockProvider;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.jdbc.datasource.DriverManagerDataSource;

/**
 * ShedLock itself, told what to do by lines of the standard input: lock NAME MOST LEAST, extend NAME MOST LEAST, unlock
 * NAME, with times in milliseconds. It answers true or false.
 */
public class Peer {
    public static void main(String[] args) throws Exception {
        String url = args[0], user = args[1], password = args[2], clock = args[3];
        var config = JdbcTemplateLockProvider.Configuration.builder()
                .withJdbcTemplate(new JdbcTemplate(new DriverManagerDataSource(url, user, password)))
                .withLockedByValue("vm");
        if (clock.equals("database")) {
            config.usingDbTime();
        } else if (clock.equals("utc")) {
            config.forceUtcTimeZone();
        }
        var provider = new JdbcTemplateLockProvider(config.build());
        Map<String, SimpleLock> held = new HashMap<>();
        var in = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("ready");
        for (String line; (line = in.readLine()) != null; ) {
            String[] word = line.split(" ");
            boolean done = false;
            try {
                switch (word[0]) {
                    case "lock" -> {
                        Optional<SimpleLock> lock = provider.lock(new LockConfiguration(Instant.now(), word[1],
                                Duration.ofMillis(Long.parseLong(word[2])), Duration.ofMillis(Long.parseLong(word[3]))));
                        lock.ifPresent(l -> held.put(word[1], l));
                        done = lock.isPresent();
                    }
                    case "extend" -> {
                        Optional<SimpleLock> lock = held.get(word[1])
                                .extend(Duration.ofMillis(Long.parseLong(word[2])), Duration.ofMillis(Long.parseLong(word[3])));
                        lock.ifPresent(l -> held.put(word[1], l));
                        done = lock.isPresent();
                    }
                    case "unlock" -> {
                        held.remove(word[1]).unlock();
                        done = true;
                    }
                    default -> throw new IllegalArgumentException(line);
                }
                System.out.println(done);
            } catch (Exception e) {
                System.out.println(e.toString().replace('\n', ' '));
            }
        }
    }
}
