-- Takes plain locks that nobody has and nobody waits for, many at once, for one token each.
-- KEYS for each 1 lock, 2 due, 3 other, 4 token; ARGV for each 1 id, 2 ttl
-- Replies for each the token, or "" if the case is another one and nothing was done, or an error.
local call, time = redis.pcall, redis.call('TIME')
local now, out = time[1] .. string.sub('00000' .. time[2], -6), {}
for i = 1, #ARGV / 2 do
  local lock, token, answer = KEYS[4 * i - 3], KEYS[4 * i], ''
  if call('EXISTS', lock, KEYS[4 * i - 2], KEYS[4 * i - 1]) == 0 then
    local old = call('SET', token, now, 'PX', '86400001', 'GET')
    if not old or type(old) == 'string' and #old == 16 and old < now then
      answer = call('HSET', lock, ARGV[2 * i - 1], '1')
      if answer == 1 then
        local set = call('PEXPIRE', lock, ARGV[2 * i])
        answer = now
        if set ~= 1 then
          call('DEL', lock)
          answer = set
        end
      end
    elseif type(old) == 'string' then
      local ahead = tonumber(string.match(old, '%d+')) - now
      call('SET', token, old, 'PX', string.format('%.0f', 86400001 + math.max(0, math.ceil(ahead / 1000))))
    else
      answer = old
    end
  end
  out[i] = answer
end
return out
