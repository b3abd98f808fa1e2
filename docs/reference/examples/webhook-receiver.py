"""Receives webhook messages, verifies their signatures, and prints each message once."""
import base64, hashlib, hmac, http.server, json, os, time

key = base64.b64decode(os.environ["WEBHOOK_SECRET"][len("whsec_"):])
seen = set()

def is_signed(headers, body):
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    given = [each.split(",", 1)[1] for each in headers["webhook-signature"].split(" ") if each.startswith("v1,")]
    is_fresh = abs(time.time() - int(headers["webhook-timestamp"])) < 300
    return is_fresh and any(hmac.compare_digest(expected, each) for each in given)

class Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if not is_signed(self.headers, body):
            return self.send_error(401)
        if self.headers["webhook-id"] not in seen:
            message = json.loads(body)
            print(message["type"], message["data"].get("requestId", ""), flush=True)
        seen.add(self.headers["webhook-id"])
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass

server = http.server.HTTPServer(("127.0.0.1", int(os.environ["PORT"])), Receiver)
print("listening", flush=True)
server.serve_forever()
