"""The MCP server that the scenarios of the official suite want: what Atoll offers comes from here. Its
argument is the port of 127.0.0.1 that it listens at."""
import asyncio, base64, sys

from mcp.server.mcpserver import Context, MCPServer
from mcp_types import (
    AudioContent, CallToolResult, CreateMessageRequest, CreateMessageRequestParams, ElicitRequest,
    ElicitRequestFormParams, EmbeddedResource, ImageContent, InputRequiredResult, ListRootsRequest,
    SamplingMessage, TextContent, TextResourceContents,
)
from mcp.server.mcpserver.prompts.base import Message, UserMessage
from mcp.server.transport_security import TransportSecuritySettings

PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)
WAV = base64.b64encode(b"RIFF$\0\0\0WAVEfmt \x10\0\0\0\1\0\1\0@\x1f\0\0@\x1f\0\0\1\0\x08\0data\0\0\0\0").decode()
server = MCPServer("conformance")


def text(words):
    return TextContent(type="text", text=words)


def image():
    return ImageContent(type="image", data=PNG, mime_type="image/png")


def embedded(uri, kind, words):
    return EmbeddedResource(type="resource", resource=TextResourceContents(uri=uri, mime_type=kind, text=words))


def result(*content, **more):
    return CallToolResult(content=list(content), **more)


@server.tool(description="Says a text.")
async def test_simple_text() -> CallToolResult:
    return result(text("This is a simple text response for testing."))


@server.tool(description="Shows a picture.")
async def test_image_content() -> CallToolResult:
    return result(image())


@server.tool(description="Plays a sound.")
async def test_audio_content() -> CallToolResult:
    return result(AudioContent(type="audio", data=WAV, mime_type="audio/wav"))


@server.tool(description="Has a resource in its result.")
async def test_embedded_resource() -> CallToolResult:
    return result(embedded("test://embedded-resource", "text/plain", "This is an embedded resource content."))


@server.tool(description="Has parts of several kinds.")
async def test_multiple_content_types() -> CallToolResult:
    words = '{"test":"data","value":123}'
    resource = embedded("test://mixed-content-resource", "application/json", words)
    return result(text("Multiple content types test:"), image(), resource)


@server.tool(description="Fails.")
async def test_error_handling() -> CallToolResult:
    return result(text("This tool intentionally returns an error for testing"), is_error=True)


@server.tool(description="Says what it does.")
async def test_tool_with_logging(ctx: Context) -> CallToolResult:
    await ctx.info("Tool execution started")
    await asyncio.sleep(0.05)
    await ctx.info("Tool processing data")
    await asyncio.sleep(0.05)
    await ctx.info("Tool execution completed")
    return result(text("Logged."))


@server.tool(description="Says how far it has come.")
async def test_tool_with_progress(ctx: Context) -> CallToolResult:
    for progress in (0, 50, 100):
        await ctx.report_progress(progress, 100)
        await asyncio.sleep(0.05)
    return result(text("Done."))


@server.tool(description="Writes to the log, if anybody asks for it.")
async def test_logging_tool(ctx: Context) -> CallToolResult:
    await ctx.info("A message for the log")
    return result(text("Logged."))


@server.tool(description="Answers without asking anybody.")
async def test_streaming_elicitation() -> CallToolResult:
    return result(text("Nobody was asked."))


@server.resource("test://static-text", name="static text", description="A text.", mime_type="text/plain")
def static_text() -> str:
    return "This is the content of the static text resource."


@server.resource("test://static-binary", name="static binary", description="A picture.", mime_type="image/png")
def static_binary() -> bytes:
    return base64.b64decode(PNG)


@server.resource("test://watched-resource", name="watched", description="One that changes.", mime_type="text/plain")
def watched() -> str:
    return "Watched."


@server.resource("test://template/{id}/data", name="template", description="By its id.", mime_type="application/json")
def template(id: str) -> str:
    return '{"id":"%s","templateTest":true,"data":"Data for ID: %s"}' % (id, id)


@server.prompt(description="Says a text.")
def test_simple_prompt() -> str:
    return "This is a simple prompt for testing."


@server.prompt(description="Has arguments in its text.")
def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@server.prompt(description="Has a resource in it.")
def test_prompt_with_embedded_resource(resourceUri: str) -> list[Message]:
    resource = embedded(resourceUri, "text/plain", "Embedded resource content for testing.")
    return [UserMessage(content=resource), UserMessage("Please process the embedded resource above.")]


@server.prompt(description="Has a picture in it.")
def test_prompt_with_image() -> list[Message]:
    return [UserMessage(content=image()), UserMessage("Please analyze the image above.")]


def elicit(message, properties, required=None):
    schema = {"type": "object", "properties": properties, "required": required or list(properties)}
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=schema))


def sample(words, most=100):
    message = SamplingMessage(role="user", content=text(words))
    return CreateMessageRequest(params=CreateMessageRequestParams(messages=[message], max_tokens=most))


NAME = {"name": {"type": "string"}}
CONFIRM = {"confirm": elicit("Please confirm", {"ok": {"type": "boolean"}})}
DEFAULTS = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    "verified": {"type": "boolean", "default": True},
}
TITLED = [{"const": f"value{at}", "title": f"{name} Option"} for at, name in enumerate(["First", "Second"], 1)]
ENUMS = {
    "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
    "titledSingle": {"type": "string", "oneOf": TITLED},
    "legacyEnum": {"type": "string", "enum": ["opt1", "opt2"], "enumNames": ["Option One", "Option Two"]},
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": ["option1", "option2"]}},
    "titledMulti": {"type": "array", "items": {"anyOf": TITLED}},
}
# What tools ask their clients, one round after another.
ASKED = {
    "test_elicitation": [{"user": elicit("Please provide your information", {
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"},
    })}],
    "test_sampling": [{"model": sample("Test prompt for sampling")}],
    "test_elicitation_sep1034_defaults": [{"all": elicit("Please review", DEFAULTS, ["name"])}],
    "test_elicitation_sep1330_enums": [{"all": elicit("Please choose", ENUMS, ["untitledSingle"])}],
    "test_input_required_result_elicitation": [{"user_name": elicit("What is your name?", NAME)}],
    "test_input_required_result_sampling": [{"capital_question": sample("What is the capital of France?")}],
    "test_input_required_result_list_roots": [{"client_roots": ListRootsRequest()}],
    "test_input_required_result_request_state": [CONFIRM],
    "test_input_required_result_tampered_state": [CONFIRM],
    "test_input_required_result_multiple_inputs": [{
        "user_name": elicit("What is your name?", NAME),
        "greeting": sample("Generate a greeting", 50),
        "client_roots": ListRootsRequest(),
    }],
    "test_input_required_result_multi_round": [
        {"step1": elicit("Step 1: What is your name?", NAME)},
        {"step2": elicit("Step 2: What is your favorite color?", {"color": {"type": "string"}})},
    ],
    "test_missing_capability": [{"model": sample("Nobody has declared that.")}],
}
# Tools that say nothing of how far they have come.
STATELESS = ("test_input_required_result_elicitation", "test_elicitation")


def asking(name, rounds):
    async def tool(ctx: Context, message: str = "", prompt: str = "") -> CallToolResult | InputRequiredResult:
        at = int(ctx.request_state or 0)
        answers = ctx.input_responses or {}
        if answers and all(key in answers for key in rounds[at]):
            at += 1
        if at == len(rounds):
            return result(text(f"state-ok {sorted(answers)}"))
        state = None if name in STATELESS else str(at)
        return InputRequiredResult(input_requests=rounds[at], request_state=state)

    server.add_tool(tool, name=name, description="Asks its client.")


for name, rounds in ASKED.items():
    asking(name, rounds)


@server.tool(description="Asks its client only what that can answer.")
async def test_input_required_result_capabilities(ctx: Context) -> CallToolResult | InputRequiredResult:
    able = ctx.client_capabilities
    asked = {}
    if able and able.elicitation:
        asked["user"] = elicit("What is your name?", NAME)
    if able and able.sampling is not None:
        asked["model"] = sample("Say hello.")
    if ctx.input_responses or not asked:
        return result(text("Done."))
    return InputRequiredResult(input_requests=asked, request_state="asked")


@server.prompt(description="Asks its client for a context.")
async def test_input_required_result_prompt(ctx: Context) -> str | InputRequiredResult:
    if ctx.input_responses:
        return "A prompt in its context."
    asked = elicit("What context should the prompt use?", {"context": {"type": "string"}})
    return InputRequiredResult(input_requests={"user_context": asked})


# Its clients name it as the host has it in their sandboxes.
server.run(
    "streamable-http", host="127.0.0.1", port=int(sys.argv[1]),
    transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
)
