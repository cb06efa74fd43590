-- Renews holds. A renewal never shortens what is left.
-- ARGV holds, one after the other: "hash", field, ttl for KEYS lock; "read", field, ttl for KEYS lock, hold, held;
-- "permits", id, ttl, number of permits, their names for KEYS free permits, set, held, permits of pawl.
-- Replies a string with "1" or "0" (not held) for each.
local time = redis.call('TIME')
local ms = time[1] * 1000 + math.floor(time[2] / 1000)
local a, key, out = 1, 1, {}

local function stretch(name, ttl)
  if redis.call('PTTL', name) < ttl then redis.call('PEXPIRE', name, ttl) end
end

local function permits(sem, set, held, ours, id, ttl, k)
  for i = 1, k do
    local till = redis.pcall('ZSCORE', set, ARGV[a + 3 + i])
    if type(till) ~= 'string' or tonumber(till) <= ms then return '0' end
  end
  for i = 1, k do
    redis.call('ZADD', set, 'XX', 'GT', ms + ttl + 1, ARGV[a + 3 + i])
    redis.call('ZADD', ours, 'XX', 'GT', ms + ttl + 1, id .. '/' .. i)
  end
  local left = redis.call('PTTL', sem)
  if left > 0 and left < ttl + 43200000 then
    redis.call('PEXPIRE', sem, ttl + 86400000)
    redis.call('PEXPIRE', set, ttl + 86400000)
    redis.call('PEXPIRE', held, ttl + 86400000)
    redis.call('PEXPIRE', ours, ttl + 86400000)
  end
  return '1'
end

while ARGV[a] do
  local what, field, ttl = ARGV[a], ARGV[a + 1], tonumber(ARGV[a + 2])
  local ok = '0'
  if what == 'permits' then
    local k = tonumber(ARGV[a + 3])
    ok = permits(KEYS[key], KEYS[key + 1], KEYS[key + 2], KEYS[key + 3], field, ttl, k)
    a, key = a + 4 + k, key + 4
  else
    if redis.pcall('HEXISTS', KEYS[key], field) == 1 and (what == 'hash' or redis.call('EXISTS', KEYS[key + 1]) == 1) then
      ok = '1'
      stretch(KEYS[key], ttl)
      if what == 'read' then
        stretch(KEYS[key + 1], ttl)
        stretch(KEYS[key + 2], ttl)
      end
    end
    a, key = a + 3, key + (what == 'read' and 3 or 1)
  end
  out[#out + 1] = ok
end
return table.concat(out)
