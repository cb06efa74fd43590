-- Takes a lock that is one plain string key, as many other clients do.
-- KEYS 1 lock, 2 tombstone of this request, 3 token (fenced only)
-- ARGV 1 value, 2 ttl, 3 span
-- Replies the first token ("0" if not fenced), or {"again", token}, {"held", pttl, value}, {"type", type}, {"gone", ""}.
local lock, token, counter, time = KEYS[1], KEYS[3], nil, nil
--@ token
if token then time = redis.call('TIME') end
local function number(span) return token and reserve(span) or '0' end

if redis.call('EXISTS', KEYS[2]) == 1 then return {'gone', ''} end
if redis.call('SET', lock, ARGV[1], 'NX', 'PX', ARGV[2]) then return number(tonumber(ARGV[3])) end
local kind = redis.call('TYPE', lock).ok
if kind ~= 'string' then return {'type', kind} end
local value = redis.call('GET', lock)
if value ~= ARGV[1] then return {'held', redis.call('PTTL', lock), value} end
if redis.call('PTTL', lock) < tonumber(ARGV[2]) then redis.call('PEXPIRE', lock, ARGV[2]) end
return {'again', token and select(3, recorded()) or number(1)}
