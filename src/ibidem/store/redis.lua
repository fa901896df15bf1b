-- All writes of the store, so that each one is atomic. KEYS[1] is the prefix of every key. ARGV has the verb and its
-- arguments. All checks come before the first write, because Redis does not undo a script that fails.

local prefix, verb = KEYS[1], ARGV[1]
local BODY, SIZE, ADDED = prefix .. 'body', prefix .. 'size', prefix .. 'added'  -- by reference
local PLACES = prefix .. 'places'  -- positions of an original, one per line, the newest last
local LINKS = prefix .. 'links'  -- number of sessions with a reference
local LOOSE = prefix .. 'loose'  -- unreferenced originals, by age
local USED, STATE = prefix .. 'used', prefix .. 'state'  -- by session
local LOG, NOTED = prefix .. 'log', prefix .. 'noted'  -- id of a session's journal, and number of its entries so far
local NOTE_BYTES = prefix .. 'note_bytes'  -- stored bytes of a session's journal
local TOTALS = prefix .. 'totals'  -- stored bytes of originals; of states and journals; bytes of texts
local call = redis.call

local function refs(session)
  return prefix .. 'refs:' .. session
end

local function notes_of(session)
  return prefix .. 'notes:' .. session
end

-- A clock that is set back must not make a session look unused.
local function use(session, now)
  local used = call('ZSCORE', USED, session)
  if not used or tonumber(used) < tonumber(now) then
    call('ZADD', USED, now, session)
  end
end

local function link(session, ref)
  if call('SADD', refs(session), ref) == 1 then
    call('HINCRBY', LINKS, ref, 1)
    call('ZREM', LOOSE, ref)
  end
end

local function unlink(session, ref)
  call('SREM', refs(session), ref)
  if call('HINCRBY', LINKS, ref, -1) <= 0 then
    call('HDEL', LINKS, ref)
    local added = call('ZSCORE', ADDED, ref)
    if added then
      call('ZADD', LOOSE, added, ref)
    end
  end
end

local function count_state(session, sign)
  local length = call('HSTRLEN', STATE, session)
  call('HINCRBY', TOTALS, 'states', string.format('%d', sign * length))
end

local function count_notes(session, bytes)
  call('HINCRBY', TOTALS, 'states', string.format('%d', bytes))
  call('HINCRBY', NOTE_BYTES, session, string.format('%d', bytes))
end

local function finish(session)
  count_state(session, -1)
  if call('HEXISTS', LOG, session) == 1 then
    count_notes(session, -tonumber(call('HGET', NOTE_BYTES, session) or 0))
    call('HDEL', LOG, session)
    call('HDEL', NOTED, session)
    call('HDEL', NOTE_BYTES, session)
    call('UNLINK', notes_of(session))
  end
  for _, ref in ipairs(call('SMEMBERS', refs(session))) do
    unlink(session, ref)
  end
  call('ZREM', USED, session)
  call('HDEL', STATE, session)
end

local function count(ref, sign)
  local stored, size = call('HSTRLEN', BODY, ref), tonumber(call('HGET', SIZE, ref) or 0)
  call('HINCRBY', TOTALS, 'stored', string.format('%d', sign * stored))  -- Lua itself would write "-0"
  call('HINCRBY', TOTALS, 'size', string.format('%d', sign * size))
end

local function drop(ref)
  count(ref, -1)
  call('HDEL', BODY, ref)
  call('HDEL', SIZE, ref)
  call('ZREM', ADDED, ref)
  call('ZREM', LOOSE, ref)
  call('HDEL', PLACES, ref)
end

-- Delete sessions whose last use was before this time.
local function finish_older(before)
  for _, session in ipairs(call('ZRANGEBYSCORE', USED, '-inf', '(' .. before)) do
    finish(session)
  end
end

-- Delete unreferenced originals that were first stored before this time. Return their number.
local function drop_older(before)
  local gone = call('ZRANGEBYSCORE', LOOSE, '-inf', '(' .. before)
  for _, ref in ipairs(gone) do
    drop(ref)
  end
  return #gone
end

-- Delete one batch beyond the limits. Arguments from `at` on: time of last use before which a session is expired, and
-- before which it is idle; limit or ''; maximum sessions, originals and bytes of a batch. Return the number of deleted
-- originals and sessions, the remaining bytes above the limit, and whether no more content can be deleted now.
local function prune(at)
  local over, idle, limit = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2])
  local most = { sessions = tonumber(ARGV[at + 3]), originals = tonumber(ARGV[at + 4]), bytes = tonumber(ARGV[at + 5]) }
  local gone = { sessions = 0, originals = 0, bytes = 0 }

  local function spent()
    return gone.sessions >= most.sessions or gone.originals >= most.originals or gone.bytes >= most.bytes
  end

  local function excess()
    local totals = call('HMGET', TOTALS, 'stored', 'states')
    return limit and math.max(0, tonumber(totals[1] or 0) + tonumber(totals[2] or 0) - limit) or 0
  end

  -- The least recently used session goes, if that was before then.
  local function finish_one(before)
    local session = call('ZRANGEBYSCORE', USED, '-inf', '(' .. before, 'LIMIT', 0, 1)[1]
    if session then
      finish(session)
      gone.sessions = gone.sessions + 1
    end
    return session
  end

  -- The oldest that no session names go, if they are from before then: as many as are wanted.
  local function drop_oldest(before, wanted)
    local most_now = math.max(0, most.originals - gone.originals)
    for _, ref in ipairs(call('ZRANGEBYSCORE', LOOSE, '-inf', '(' .. before, 'LIMIT', 0, most_now)) do
      if wanted <= 0 or gone.bytes >= most.bytes then
        return
      end
      local length = call('HSTRLEN', BODY, ref)
      drop(ref)
      wanted, gone.bytes, gone.originals = wanted - length, gone.bytes + length, gone.originals + 1
    end
  end

  while not spent() and finish_one(over) do
  end
  drop_oldest(over, math.huge)
  local left = excess()
  while left > 0 and not spent() do
    drop_oldest('+inf', left)
    left = excess()
    if left > 0 and not spent() and not finish_one(idle) then
      break
    end
  end
  return { gone.originals, gone.sessions, left, spent() and 0 or 1 }
end

local SLICE = 6  -- arguments of a slice

-- session, now, slice, then for each original: reference, body, size, and the body that it may replace
local function put()
  local session, now = ARGV[2], ARGV[3]
  local new, others = {}, { 'others' }
  for at = 4 + SLICE, #ARGV, 4 do
    local ref, body, seen = ARGV[at], ARGV[at + 1], ARGV[at + 3]
    local there = call('HGET', BODY, ref)
    if not there or there == seen then
      new[#new + 1] = at
    elseif there ~= body then
      others[#others + 1] = ref
    end
  end
  if #others > 1 then
    return others
  end
  for _, at in ipairs(new) do
    local ref = ARGV[at]
    count(ref, -1)
    call('HSET', BODY, ref, ARGV[at + 1])
    call('HSET', SIZE, ref, ARGV[at + 2])
    call('ZADD', ADDED, 'NX', now, ref)
    count(ref, 1)
  end
  use(session, now)
  for at = 4 + SLICE, #ARGV, 4 do
    link(session, ARGV[at])
  end
  return { 'done', unpack(prune(4)) }
end

-- session, now, slice, state, then the references
local function save()
  local session, live = ARGV[2], {}
  use(session, ARGV[3])
  count_state(session, -1)
  call('HSET', STATE, session, ARGV[4 + SLICE])
  count_state(session, 1)
  for at = 5 + SLICE, #ARGV do
    live[ARGV[at]] = true
    link(session, ARGV[at])
  end
  for _, ref in ipairs(call('SMEMBERS', refs(session))) do
    if not live[ref] then
      unlink(session, ref)
    end
  end
  return prune(4)
end

-- session, now
local function load()
  if not call('ZSCORE', USED, ARGV[2]) then
    return false
  end
  use(ARGV[2], ARGV[3])
  return call('HGET', STATE, ARGV[2])
end

-- Return a session's journal id, its number of entries so far, and the entries after the first `known` ones of `log`.
local function notes_since(session, log, known)
  local now, noted = call('HGET', LOG, session) or '', tonumber(call('HGET', NOTED, session) or 0)
  local let_go = noted - call('LLEN', notes_of(session))
  local first = log == now and math.min(known, noted) or 0
  return now, noted, call('LRANGE', notes_of(session), math.max(0, first - let_go), -1)
end

-- session, now, log, known
local function notes()
  local session = ARGV[2]
  if not call('ZSCORE', USED, session) then
    return { '', 0, {} }
  end
  use(session, ARGV[3])
  local log, noted, rows = notes_since(session, ARGV[4], tonumber(ARGV[5]))
  return { log, noted, rows }
end

-- session, now, slice, log, known, id for a new journal, maximum number of entries, then the entries
local function note()
  local session, at = ARGV[2], 4 + SLICE
  local known, most = tonumber(ARGV[at + 1]), tonumber(ARGV[at + 3])
  use(session, ARGV[3])
  local log, noted, rows = notes_since(session, ARGV[at], known)
  if log ~= ARGV[at] or noted ~= known then
    return { 0, log, noted, rows }
  end
  log = log ~= '' and log or ARGV[at + 2]
  local key, bytes = notes_of(session), 0
  for place = at + 4, #ARGV do
    call('RPUSH', key, ARGV[place])
    bytes, noted = bytes + #ARGV[place], noted + 1
  end
  local over = call('LLEN', key) - most
  if over > 0 then
    for _, row in ipairs(call('LRANGE', key, 0, over - 1)) do
      bytes = bytes - #row
    end
    call('LTRIM', key, over, -1)
  end
  call('HSET', LOG, session, log)
  call('HSET', NOTED, session, noted)
  count_notes(session, bytes)
  return { 1, log, noted, {}, unpack(prune(4)) }
end

-- maximum number of positions, then for each original: reference, position
local function place()
  for at = 3, #ARGV, 2 do
    local ref, lines = ARGV[at], {}
    if call('HEXISTS', BODY, ref) == 1 then
      for line in string.gmatch(call('HGET', PLACES, ref) or '', '[^\n]+') do
        if line ~= ARGV[at + 1] then
          lines[#lines + 1] = line
        end
      end
      lines[#lines + 1] = ARGV[at + 1]
      call('HSET', PLACES, ref, table.concat(lines, '\n', math.max(1, #lines - tonumber(ARGV[2]) + 1)))
    end
  end
end

-- session
local function forget()
  finish(ARGV[2])
  return drop_older('+inf')
end

-- before
local function forget_older()
  finish_older(ARGV[2])
  return drop_older(ARGV[2])
end

local function forget_all()
  local gone = call('HLEN', BODY)
  for _, session in ipairs(call('ZRANGE', USED, 0, -1)) do
    call('UNLINK', refs(session), notes_of(session))
  end
  call('UNLINK', PLACES, BODY, SIZE, ADDED, LINKS, LOOSE, USED, STATE, LOG, NOTED, NOTE_BYTES, TOTALS)
  return gone
end

-- slice
local function prune_some()
  return prune(2)
end

-- Older versions did not count states. Count the existing ones once.
if call('HEXISTS', TOTALS, 'states') == 0 and verb ~= 'load' and verb ~= 'notes' then
  local states = 0
  for _, session in ipairs(call('HKEYS', STATE)) do
    states = states + call('HSTRLEN', STATE, session)
  end
  call('HSET', TOTALS, 'states', string.format('%d', states))
end

local verbs = {
  put = put,
  save = save,
  load = load,
  note = note,
  notes = notes,
  place = place,
  forget = forget,
  forget_older = forget_older,
  forget_all = forget_all,
  prune = prune_some,
}
return verbs[verb]()
