import java.net.URI;
import java.net.http.*;

public class Client {
    public static void main(String[] urls) throws Exception {
        HttpClient client = HttpClient.newHttpClient();
        for (String url : urls) {
            try {
                var request = HttpRequest.newBuilder(URI.create(url)).build();
                var answer = client.send(request, HttpResponse.BodyHandlers.ofString());
                System.out.print(answer.statusCode() + " " + answer.version() + " " + answer.body());
            } catch (java.io.IOException error) {
                System.out.println("failed");
            }
        }
    }
}
