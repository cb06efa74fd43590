-- tell publishes on a channel of Redisson's, whose clients listen to sharded messages in most clusters and to plain ones
-- elsewhere. It answers how many listen at this node.
local function tell(channel, payload)
  local n = redis.call('PUBLISH', channel, payload)
  local more = cluster and redis.pcall('SPUBLISH', channel, payload)
  return type(more) == 'number' and n + more or n
end
