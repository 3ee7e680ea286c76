-- The stalls of a capture as fields of Wireshark and tshark, to filter, sort and count by: what the packet comments of an
-- annotated one say (nagle-lab annotate FILE -o OUT.pcapng), or for any other what was found in it, in a file beside it:
-- nagle-lab analyze --json FILE > FILE.json, which the preference nagle.result names (tshark -o nagle.result:FILE.json).
--
--   nagle.stall    the number of the stall, as `nagle-lab show FILE --stall N` counts
--   nagle.part     trigger, late ACK or release
--   nagle.wait_ms  from the trigger to the late ACK, at the capture point
--   nagle.role     who held it: client or server (on the late ACK: who delayed that)
--
-- Put this file into the folder that Help > About > Folders calls Personal Lua Plugins; or tshark -X lua_script:nagle-lab.lua.

local nagle = Proto("nagle", "nagle-lab: stalls by delayed ACKs")
local stall = ProtoField.uint32("nagle.stall", "Stall")
local part = ProtoField.string("nagle.part", "Part of the stall")
local wait_ms = ProtoField.double("nagle.wait_ms", "Trigger to late ACK (ms)")
local role = ProtoField.string("nagle.role", "Role")
nagle.fields = { stall, part, wait_ms, role }

nagle.prefs.result = Pref.string("Result", "", "What nagle-lab analyze --json FILE printed, for a capture without comments")

local comment = Field.new("frame.comment")
local results = {} -- by frame: what the file beside the capture says, a list of {number, part, ms, role}

-- The stalls of the result, in its own order of fields (schema nagle-lab/1), for Lua has no JSON.
local STALL = '"held_by":{[^}]-"role":"(%a+)"},"delayed_by":{[^}]-"role":"(%a+)"},'
    .. '"trigger_frame":(%d+),"ack_frame":([%dnul]+),"release_frame":(%d+),"wait_ms":([%d%.]+)'

local function load_results(path)
    results = {}
    if path == "" then return end
    local file = io.open(path, "rb")
    local text = file and file:read("*a") or ""
    if file then file:close() end
    local stalls = text:match('^{"schema":"nagle%-lab/1".-"stalls":(%[.*)')
    if not stalls then
        report_failure("nagle-lab: " .. path .. " is not what nagle-lab analyze --json prints")
        return
    end
    local number = 0
    for held, delayed, trigger, ack, release, ms in stalls:gmatch(STALL) do
        number = number + 1
        for _, one in ipairs({ { trigger, "trigger", held }, { ack, "late ACK", delayed }, { release, "release", held } }) do
            local frame = tonumber(one[1]) -- null: the capture lacks the ACK
            if frame then
                results[frame] = results[frame] or {}
                table.insert(results[frame], { number, one[2], tonumber(ms), one[3] })
            end
        end
    end
end

function nagle.init() load_results(nagle.prefs.result) end

-- What one comment says: number, part, ms, role; nil where it is somebody else's.
local function read(text)
    local number, what = text:match("^nagle%-lab stall (%d+) of %d+, ([%a ]-): ")
    if not number then return nil end
    local ms = text:match("([%d%.]+) ms later") or text:match("([%d%.]+) ms after the trigger")
    return tonumber(number), what, tonumber(ms), text:match("the (%a+) %(")
end

local function add(tree, number, what, ms, who)
    local item = tree:add(nagle, string.format("nagle-lab: stall %d, %s", number, what))
    item:add(stall, number)
    item:add(part, what)
    if ms then item:add(wait_ms, ms) end
    if who then item:add(role, who) end
end

function nagle.dissector(buffer, packet, tree)
    local commented = false
    for _, one in ipairs({ comment() }) do
        local number, what, ms, who = read(tostring(one.value))
        if number then
            add(tree, number, what, ms, who)
            commented = true
        end
    end
    if commented then return end
    for _, one in ipairs(results[packet.number] or {}) do add(tree, table.unpack(one)) end
end

register_postdissector(nagle)

-- How many stalls, and how long they waited, by who held: `show` is given the text.
local values = { Field.new("nagle.part"), Field.new("nagle.wait_ms"), Field.new("nagle.role") }

local function tally(show)
    local tap, count, total = Listener.new("frame"), {}, {}
    function tap.packet()
        local parts, waits, roles = { values[1]() }, { values[2]() }, { values[3]() }
        for i, one in ipairs(parts) do
            if one.value == "release" then
                local name = roles[i].value
                count[name], total[name] = (count[name] or 0) + 1, (total[name] or 0) + waits[i].value
            end
        end
    end
    function tap.reset() count, total = {}, {} end
    function tap.draw()
        local lines = {}
        for name, number in pairs(count) do
            lines[#lines + 1] = string.format("held by the %s: %d stalls, %.1f ms", name, number, total[name])
        end
        table.sort(lines)
        show(table.concat(lines, "\n") .. "\n")
    end
    return tap
end

-- In Wireshark: Tools > nagle-lab: time lost. In tshark: -q -X lua_script1:summary.
if gui_enabled() then
    register_menu("nagle-lab: time lost", function()
        local window = TextWindow.new("nagle-lab: time lost")
        local tap = tally(function(text) window:set(text) end)
        window:set_atclose(function() tap:remove() end)
        retap_packets()
    end, MENU_TOOLS_UNSORTED)
elseif ... == "summary" then
    tally(io.write)
end
