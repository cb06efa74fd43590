-- Replies the server's run id, the seconds since it started, its replication id, and the one it had as a replica (zeros: it
-- was none).
local out = {}
local function facts(section, ...)
  local text = redis.call('INFO', section)
  for _, field in ipairs({...}) do out[#out + 1] = string.match(text, '\n' .. field .. ':([^\r\n]*)') or '' end
end
facts('server', 'run_id', 'uptime_in_seconds')
facts('replication', 'master_replid', 'master_replid2')
return out
