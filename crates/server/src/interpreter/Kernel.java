// Java kernel of Atoll's code interpreter: runs cells with JShell in one process, see server.py.
// Java cannot change its environment: a cell's env_vars are system properties here.
import java.io.BufferedInputStream;
import java.io.FileDescriptor;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.stream.Collectors;
import jdk.jshell.Diag;
import jdk.jshell.EvalException;
import jdk.jshell.JShell;
import jdk.jshell.Snippet;
import jdk.jshell.SnippetEvent;
import jdk.jshell.SourceCodeAnalysis.CompletionInfo;

/** Reads requests from the control socket and evaluates them. */
public class Kernel {
    private static final int MAX_PART = 32 << 20;
    private final BufferedInputStream input;
    private final FileOutputStream output;
    private final JShell shell = JShell.builder().executionEngine("local").build();
    private String token;
    private volatile boolean running;
    private volatile boolean interrupted;

    private Kernel(int number) throws ReflectiveOperationException {
        FileDescriptor descriptor = new FileDescriptor();
        var field = FileDescriptor.class.getDeclaredField("fd");
        field.setAccessible(true);
        field.setInt(descriptor, number);
        input = new BufferedInputStream(new FileInputStream(descriptor));
        output = new FileOutputStream(descriptor);
    }

    public static void main(String[] arguments) throws Exception {
        Kernel kernel = new Kernel(Integer.parseInt(arguments[0]));
        sun.misc.Signal.handle(new sun.misc.Signal("INT"), signal -> kernel.interrupt());
        kernel.serve();
    }

    private void interrupt() {
        if (running) {
            interrupted = true;
            shell.stop();
        }
    }

    private void serve() throws IOException {
        token = (String) new Json(readLine()).value().get("token");
        for (String name : new String[] {"java.io.*", "java.math.*", "java.util.*", "java.util.function.*", "java.util.stream.*"}) {
            shell.eval("import " + name + ";");
        }
        for (String line = readLine(); line != null; line = readLine()) {
            run(new Json(line).value());
        }
        ProcessHandle.current().destroyForcibly();
        Runtime.getRuntime().halt(0);
    }

    private String readLine() throws IOException {
        var line = new java.io.ByteArrayOutputStream();
        byte[] one = new byte[1];
        while (input.read(one) > 0) {
            if (one[0] == '\n') {
                return line.toString(StandardCharsets.UTF_8);
            }
            line.write(one[0]);
        }
        return null;
    }

    private void run(Map<String, Object> request) throws IOException {
        @SuppressWarnings("unchecked")
        var changes = (Map<String, Object>) request.get("env");
        Map<String, String> before = new HashMap<>();
        changes.forEach((name, value) -> before.put(name, System.setProperty(name, (String) value)));
        interrupted = false;
        running = true;
        evaluateAll((String) request.get("code"));
        running = false;
        before.forEach((name, value) -> {
            if (value == null) {
                System.clearProperty(name);
            } else {
                System.setProperty(name, value);
            }
        });
        System.out.flush();
        System.err.flush();
        send("{\"type\":\"done\",\"id\":" + request.get("id") + "}");
    }

    /** Evaluates a cell's snippets; the value of the last one, if it is an expression, is the result. */
    private void evaluateAll(String code) throws IOException {
        String rest = code;
        SnippetEvent last = null;
        while (!rest.isBlank()) {
            CompletionInfo part = shell.sourceCodeAnalysis().analyzeCompletion(rest);
            String source = part.completeness().isComplete() ? part.source() : rest;
            for (SnippetEvent event : shell.eval(source)) {
                last = event.causeSnippet() == null ? event : last;
                if (event.causeSnippet() == null && failed(event)) {
                    return;
                }
            }
            rest = part.completeness().isComplete() ? part.remaining() : "";
        }
        boolean expression = last != null && last.snippet().kind() == Snippet.Kind.EXPRESSION || isTemporary(last);
        if (expression && last.value() != null && !last.value().isEmpty() && !code.stripTrailing().endsWith(";")) {
            sendResult(last.value());
        }
    }

    private static boolean isTemporary(SnippetEvent event) {
        return event != null && event.snippet().subKind() == Snippet.SubKind.TEMP_VAR_EXPRESSION_SUBKIND;
    }

    private void sendResult(String value) throws IOException {
        if (value.length() > MAX_PART) {
            sendError("OutputTooLarge", "the result has " + value.length() + " characters; the limit is " + MAX_PART, "");
        } else {
            send("{\"type\":\"result\",\"main\":true,\"mime\":{\"text/plain\":" + Json.quote(value) + "}}");
        }
    }

    /** Reports a snippet's error; returns whether there was one. */
    private boolean failed(SnippetEvent event) throws IOException {
        if (interrupted) {
            sendError("KeyboardInterrupt", "the cell was interrupted", "");
        } else if (event.status() == Snippet.Status.REJECTED) {
            String text = shell.diagnostics(event.snippet()).filter(Diag::isError)
                .map(diagnostic -> diagnostic.getMessage(null)).collect(Collectors.joining("\n"));
            sendError("CompileError", text, text + "\n  " + event.snippet().source().strip());
        } else if (event.exception() instanceof EvalException exception) {
            String name = exception.getExceptionClassName();
            StringBuilder trace = new StringBuilder(name + ": " + exception.getMessage());
            for (StackTraceElement element : exception.getStackTrace()) {
                trace.append("\n    at ").append(element);
            }
            sendError(name.substring(name.lastIndexOf('.') + 1), String.valueOf(exception.getMessage()), trace.toString());
        } else if (event.exception() != null) {
            sendError("UnresolvedReference", String.valueOf(event.exception().getMessage()), "");
        } else {
            return false;
        }
        return true;
    }

    private void sendError(String name, String value, String trace) throws IOException {
        send("{\"type\":\"error\",\"name\":" + Json.quote(name) + ",\"value\":" + Json.quote(value)
            + ",\"traceback\":" + Json.quote(trace) + "}");
    }

    private void send(String json) throws IOException {
        output.write(("\n" + token + " " + json + "\n").getBytes(StandardCharsets.UTF_8));
    }

    /** A reader of the JSON objects that the server sends. */
    private static final class Json {
        private final String text;
        private int at;

        Json(String text) {
            this.text = text;
        }

        /** Reads an object of strings, numbers, booleans and objects. */
        Map<String, Object> value() {
            Map<String, Object> members = new HashMap<>();
            at++;
            while (skip() != '}') {
                String name = string();
                skip();
                at++;
                members.put(name, item());
                if (skip() == ',') {
                    at++;
                }
            }
            at++;
            return members;
        }

        private char skip() {
            while (text.charAt(at) == ' ') {
                at++;
            }
            return text.charAt(at);
        }

        private Object item() {
            char first = skip();
            if (first == '"') {
                return string();
            }
            if (first == '{') {
                return value();
            }
            int start = at;
            while (",}".indexOf(text.charAt(at)) < 0) {
                at++;
            }
            return text.substring(start, at).strip();
        }

        private String string() {
            skip();
            StringBuilder result = new StringBuilder();
            for (at++; text.charAt(at) != '"'; at++) {
                char c = text.charAt(at);
                result.append(c == '\\' ? escape() : c);
            }
            at++;
            return result.toString();
        }

        private char escape() {
            char c = text.charAt(++at);
            if (c == 'u') {
                at += 4;
                return (char) Integer.parseInt(text.substring(at - 3, at + 1), 16);
            }
            int simple = "bfnrt".indexOf(c);
            return simple < 0 ? c : "\b\f\n\r\t".charAt(simple);
        }

        /** Returns a string as JSON. */
        static String quote(String value) {
            StringBuilder result = new StringBuilder("\"");
            for (char c : value.toCharArray()) {
                if (c == '"' || c == '\\') {
                    result.append('\\').append(c);
                } else if (c < 0x20 || c > 0x7e) {
                    result.append(String.format("\\u%04x", (int) c));
                } else {
                    result.append(c);
                }
            }
            return result.append('"').toString();
        }
    }
}
