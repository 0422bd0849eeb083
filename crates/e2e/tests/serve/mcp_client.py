"""Drives tools by the official SDK of MCP (PyPI `mcp`), unmodified, over HTTP or stdio.

Reads MCP_URL and MCP_KEY; without them it starts ATOLL, which serves on standard input and output.
Prints `ok NAME` or `failed NAME: why` for each check, and exits 1 if one failed.
"""

import asyncio
import contextlib
import os
import re
import sys
import traceback

import httpx2
from mcp import ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client


@contextlib.asynccontextmanager
async def session(**callbacks):
    command = None if "MCP_URL" in os.environ else os.environ["ATOLL"]
    async with contextlib.AsyncExitStack() as stack:
        if command:
            parameters = StdioServerParameters(
                command=command, args=["mcp"], env=dict(os.environ), cwd=os.getcwd()
            )
            streams = await stack.enter_async_context(stdio_client(parameters))
        else:
            head = {"Authorization": f"Bearer {os.environ['MCP_KEY']}"}
            client = await stack.enter_async_context(httpx2.AsyncClient(headers=head, timeout=60))
            url = os.environ["MCP_URL"]
            streams = await stack.enter_async_context(streamable_http_client(url, http_client=client))
        made = ClientSession(streams[0], streams[1], **callbacks)
        made = await stack.enter_async_context(made)
        made.greeting = await made.initialize()
        yield made


def text(result):
    return "".join(one.text for one in result.content if one.type == "text")


async def greeting_tells_of_the_boundary(mcp):
    greeting = mcp.greeting
    assert greeting.server_info.name == "atoll", greeting
    assert "atoll__may_i" in greeting.instructions, greeting.instructions


async def tools_are_listed_in_order(mcp):
    names = [tool.name for tool in (await mcp.list_tools()).tools]
    assert names == sorted(names), names
    assert {"upper", "note", "atoll__may_i"} <= set(names) and "hidden" not in names, names
    note = next(tool for tool in (await mcp.list_tools()).tools if tool.name == "note")
    assert note.input_schema["properties"]["count"]["minimum"] == 1, note
    assert not note.annotations.read_only_hint, note


async def calls_have_results(mcp):
    for word in ["abc", "déf"]:
        result = await mcp.call_tool("upper", {"text": word})
        assert not result.is_error and text(result) == word.upper().replace("É", "é"), result
    result = await mcp.call_tool("note", {"text": "hi", "count": 2})
    assert result.structured_content == {"text": "hi", "count": 2}, result


async def long_results_are_read_on(mcp):
    result = await mcp.call_tool("long", {})
    parts = [one.text for one in result.content]
    assert parts[0] == "0123456789" * 100, result
    place = re.fullmatch(r".* with call (\d+) and from 0 reads on\.", parts[-1])
    whole, next_one = parts[0], 0
    while next_one is not None:
        arguments = {"call": int(place[1]), "from": next_one}
        result = await mcp.call_tool("atoll__read_result", arguments)
        whole += result.content[0].text
        more = re.search(r"from (\d+) reads on", result.content[-1].text) if result.content[1:] else None
        next_one = int(more[1]) if more else None
    assert whole == "0123456789" * 10_000, len(whole)
    try:
        await mcp.call_tool("atoll__read_result", {"call": 1_000_000})
    except Exception as error:
        assert "nothing is kept" in str(error), error
    else:
        raise AssertionError("a result that is not there was read")


async def failures_are_results(mcp):
    result = await mcp.call_tool("fail", {})
    assert result.is_error and "status 3" in text(result) and "why" in text(result), result
    result = await mcp.call_tool("note", {"count": 0})
    assert result.is_error and "minimum of 1" in text(result), result
    try:
        await mcp.call_tool("hidden", {})
    except Exception as error:
        assert "there is no tool" in str(error), error
    else:
        raise AssertionError("a hidden tool was called")


async def denials_say_how_to_ask(mcp):
    result = await mcp.call_tool("note", {"text": "a secret"})
    assert result.is_error and "Denied by policy" in text(result), result
    assert "policy no-secrets" in text(result) and "How to ask" in text(result), result
    may = await mcp.call_tool("atoll__may_i", {"tool": "note", "arguments": {"text": "a secret"}})
    assert may.structured_content["verdict"] == "deny", may
    may = await mcp.call_tool("atoll__may_i", {"tool": "note", "arguments": {"text": "fine"}})
    assert may.structured_content["verdict"] == "allow", may


async def one_sandbox_lives_for_a_session(mcp):
    counts = [text(await mcp.call_tool("count", {})).strip() for _ in range(3)]
    assert counts == ["1", "2", "3"], counts
    async with session() as other:
        assert text(await other.call_tool("count", {})).strip() == "1"
    fresh = [text(await mcp.call_tool("fresh", {})).strip() for _ in range(2)]
    assert fresh == ["1", "1"], fresh


async def calls_go_on_side_by_side(mcp):
    calls = [mcp.call_tool("upper", {"text": f"a{number}"}) for number in range(8)]
    results = await asyncio.gather(*calls)
    assert [text(one) for one in results] == [f"A{number}" for number in range(8)], results


async def a_call_that_is_given_up_ends(mcp):
    try:
        await asyncio.wait_for(mcp.call_tool("sleep", {}), 1)
    except (TimeoutError, asyncio.TimeoutError):
        pass
    result = await mcp.call_tool("upper", {"text": "still here"})
    assert text(result) == "STILL HERE", result


async def main():
    checks = [
        greeting_tells_of_the_boundary,
        tools_are_listed_in_order,
        calls_have_results,
        long_results_are_read_on,
        failures_are_results,
        denials_say_how_to_ask,
        one_sandbox_lives_for_a_session,
        calls_go_on_side_by_side,
        a_call_that_is_given_up_ends,
    ]
    failed = False
    async with session() as mcp:
        for check in checks:
            try:
                await asyncio.wait_for(check(mcp), 60)
                print(f"ok {check.__name__}", flush=True)
            except Exception:
                failed = True
                print(f"failed {check.__name__}: {traceback.format_exc()}", flush=True)
    if "MCP_URL" not in os.environ:
        for action in ["accept", "decline"]:
            asked = []

            async def answer(_, parameters, action=action, asked=asked):
                asked.append(parameters.message)
                return types.ElicitResult(action=action, content={})

            async with session(elicitation_callback=answer) as mcp:
                result = await mcp.call_tool("wanted", {"text": "please"})
                is_right = result.is_error == (action == "decline")
                is_shown = "please" in asked[0] and "Tool: wanted" in asked[0]
                failed |= not (is_right and is_shown)
                verb = "ok" if is_right and is_shown else "failed"
                print(f"{verb} a_person_is_asked_and_answers {action} {result if verb == 'failed' else ''}")
    sys.exit(1 if failed else 0)


asyncio.run(main())
