-- Ends holds of plain locks for which nobody waits, many at once.
-- KEYS for each 1 lock, 2 due, 3 queue, 4 token; ARGV for each 1 id, 2 its token
-- Replies for each 1, or 2 if the hold was ended and somebody has to be let in, or "" if the case is another one and nothing
-- was done, or an error.
local call, out = redis.pcall, {}
for i = 1, #ARGV / 2 do
  local k = 4 * i - 3
  local lock, answer = KEYS[k], ''
  if call('GET', KEYS[k + 3]) == ARGV[2 * i] then
    local n = call('HDEL', lock, ARGV[2 * i - 1])
    if n == 1 then
      answer = 2
      if call('EXISTS', lock, KEYS[k + 1], KEYS[k + 2]) == 0 then
        call('PUBLISH', 'redisson_lock__channel:' .. (string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}'), '0')
        answer = 1
      end
    elseif n ~= 0 then
      answer = n
    end
  end
  out[i] = answer
end
return out
