"""An OpenAI-compatible server that answers as a test says, over real HTTP."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class JudgeServer:
    """Answers with `says`, or the next of `plan`: an HTTP status, seconds to wait, a text, or a whole body."""

    def __init__(self) -> None:
        self.says = "It went well.\nscore: 0.75"
        self.plan: list[int | float | str | bytes] = []
        self.drip_s = 0.0  # between two bytes of an answer
        self.asked: list[dict] = []
        self.keys: list[str] = []
        self._lock = threading.Lock()
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with stub._lock:
                    stub.asked.append({**asked, "path": self.path})
                    stub.keys.append(self.headers.get("Authorization", ""))
                    step = stub.plan.pop(0) if stub.plan else stub.says
                if isinstance(step, float):
                    time.sleep(step)
                status, says = (step, "no") if isinstance(step, int) else (200, stub.says)
                if isinstance(step, str):
                    says = step
                message = {"role": "assistant", "content": says}
                choice = {"index": 0, "message": message, "finish_reason": "stop"}
                whole = {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
                body = json.dumps(whole if status == 200 else {"error": {"message": f"status {status}"}}).encode()
                body = step if isinstance(step, bytes) else body
                try:
                    self.send_response(status)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    for byte in [body] if not stub.drip_s else [bytes([value]) for value in body]:
                        self.wfile.write(byte)
                        self.wfile.flush()
                        time.sleep(stub.drip_s)
                except OSError:  # who asked has gone
                    pass

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
