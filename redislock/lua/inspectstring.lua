-- Shows a lock that is one plain string key.
-- KEYS 1 lock, 2 token (fenced only)
-- Replies {value, pttl, first token or ""}, or nothing if there is none.
local token, counter, time, first = KEYS[2], nil, nil, nil
--@ token
local value = redis.pcall('GET', KEYS[1])
if type(value) ~= 'string' then return false end
if token then first = select(3, recorded()) end
return {value, redis.call('PTTL', KEYS[1]), first or ''}
