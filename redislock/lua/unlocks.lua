-- Ends holds of plain locks for which nobody waits, many at once.
-- KEYS for each 1 lock, 2 due, 3 queue, 4 token; ARGV for each 1 id, 2 its token, 3 channel
-- Replies for each 1, or 2 if the hold was ended and somebody has to be let in, or "" if the case is another one and nothing
-- was done, or an error.
local call, out = redis.pcall, {}
for i = 1, #ARGV / 3 do
  local lock, answer = KEYS[4 * i - 3], ''
  if call('GET', KEYS[4 * i]) == ARGV[3 * i - 1] then
    local n = call('HDEL', lock, ARGV[3 * i - 2])
    if n == 1 then
      answer = 2
      if call('EXISTS', lock, KEYS[4 * i - 2], KEYS[4 * i - 1]) == 0 then
        call('PUBLISH', ARGV[3 * i], '0')
        answer = 1
      end
    elseif n ~= 0 then
      answer = n
    end
  end
  out[i] = answer
end
return out
