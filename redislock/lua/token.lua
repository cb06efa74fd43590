-- Tokens are decimal text of at most 19 digits, since Lua's numbers are exact up to 2^53 only.
--
-- On one server the clock key remembers the highest token that was ever stamped on any name. A stamped hold has its token in its
-- own field, and nothing is kept for its name. Otherwise, and in a cluster always (clock is nil), the name's token key holds the
-- last token reserved and, unless that is the same, the first one of the present hold: "<last> <first>", or "<last>+<first>" if
-- the last was raised.

local function above(a, b) return #a > #b or #a == #b and a > b end

local function plus(a, n)
  local low = tonumber(string.sub(a, -15)) + n
  local high = (#a > 15 and tonumber(string.sub(a, 1, -16)) or 0) + math.floor(low / 1e15)
  if high == 0 then return string.format('%.0f', low) end
  return string.format('%.0f%015.0f', high, low % 1e15)
end

-- remember keeps a text about tokens until the server's clock has passed the last of them by a day.
local function remember(key, last, text)
  local ahead = math.max(0, tonumber(last) - (time[1] * 1000000 + time[2]))
  redis.call('SET', key, text, 'PX', string.format('%.0f', 86400001 + math.ceil(ahead / 1000)))
end

local function record(last, sign, first) remember(token, last, last == first and last or last .. sign .. first) end

-- recorded answers the last token, what follows it (" ", "+" or ""), and the first one of the present hold, unless it is stamped.
local function recorded()
  local last, sign, first = string.match(redis.call('GET', token) or '', '^(%d+)([ +]?)(%d*)$')
  return last, sign, first == '' and last or first
end

-- upcoming answers a token that is not below the server's clock in microseconds, and above all that were stamped.
local function upcoming()
  local now = string.format('%.0f', time[1] * 1000000 + time[2])
  local last = clock and redis.pcall('GET', clock)
  if type(last) == 'string' and #last < 18 and string.find(last, '^%d+$') and not above(now, last) then return plus(last, 1) end
  return now
end

-- stamp takes one token above all earlier ones of the name. It answers nil if that has to be recorded for the name itself.
local function stamp()
  if not clock then return nil end
  local first, was = upcoming(), recorded()
  if #first > 17 or was and not above(first, was) then return nil end
  remember(clock, first, first)
  if was then redis.call('DEL', token) end
  return first
end

-- reserve takes span tokens above all earlier ones of the name. It answers the first.
local function reserve(span)
  local first, last
  if counter then
    first = string.format('%.0f', redis.call('INCR', counter))
    last = first
  else
    first = upcoming()
    local was = recorded()
    if was and not above(first, was) then first = plus(was, 1) end
    last = plus(first, span - 1)
    if above(last, '9223372036854775807') then error('pawl: the tokens of this name are used up') end
  end
  record(last, ' ', first)
  return first
end

-- stamped is the token in the field of a hold, or nil: then it is recorded.
local function stamped(value) return type(value) == 'string' and #value > 9 and value or nil end
