# SPDX-License-Identifier: BSD-3-Clause
"""A headless Chromium, spoken to through a pipe, so that it needs no driver and no port.

    with Browser() as browser:
        browser.open(path, width=1280, height=800, dark=False)
        browser.run('1 + 1')     # an expression of JavaScript; promises are waited for
        browser.errors           # what the console and the page complained about
"""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ('chromium', 'chromium-browser', 'google-chrome', 'chrome')


def missing():
    """Why there is no browser here, or None."""
    return None if any(map(shutil.which, NAMES)) else 'there is no chromium here (apt-get install chromium)'


class Browser:
    def __init__(self, timeout=60):
        self.timeout, self.errors, self.next, self.buffer = timeout, [], 1, b''
        self.profile = tempfile.TemporaryDirectory(prefix='browser-', ignore_cleanup_errors=True)
        out, self.write = os.pipe()
        self.read, back = os.pipe()
        program = next(filter(None, map(shutil.which, NAMES)))
        flags = ['--headless=new', '--no-sandbox', '--disable-gpu', '--remote-debugging-pipe',
                 '--no-first-run',
                 '--disable-dev-shm-usage', '--hide-scrollbars', '--disable-background-networking',
                 '--host-resolver-rules=MAP * ~NOTFOUND', f'--user-data-dir={self.profile.name}',
                 'about:blank']

        def pipes():
            os.dup2(os.dup(out), 3)
            os.dup2(back, 4)

        high = [os.dup(fd) for fd in (out, back)]  # 3 and 4 may be one of them
        os.close(out), os.close(back)
        out, back = high

        def place():
            a, b = os.dup(out), os.dup(back)
            os.dup2(a, 3)
            os.dup2(b, 4)

        del pipes
        self.process = subprocess.Popen([program, *flags], preexec_fn=place, close_fds=False,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        os.close(out), os.close(back)
        target = self.call('Target.createTarget', url='about:blank')['targetId']
        self.session = self.call('Target.attachToTarget', targetId=target, flatten=True)['sessionId']
        for domain in ('Page', 'Runtime', 'Log', 'Network'):
            self.call(f'{domain}.enable')

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.read), os.close(self.write)
        self.profile.cleanup()

    def message(self, deadline):
        while b'\0' not in self.buffer:
            ready, _, _ = select.select([self.read], [], [], max(0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError('the browser does not answer')
            part = os.read(self.read, 1 << 20)
            if not part:
                raise EOFError('the browser has ended')
            self.buffer += part
        line, self.buffer = self.buffer.split(b'\0', 1)
        return json.loads(line)

    def note(self, event):
        method, params = event.get('method'), event.get('params', {})
        if method == 'Runtime.exceptionThrown':
            details = params['exceptionDetails']
            self.errors.append(details.get('exception', {}).get('description') or details['text'])
        elif method == 'Runtime.consoleAPICalled' and params['type'] in ('error', 'warning', 'assert'):
            self.errors.append(' '.join(str(a.get('value', a.get('description'))) for a in params['args']))
        elif method == 'Log.entryAdded' and params['entry']['level'] in ('error', 'warning'):
            self.errors.append(params['entry']['text'])
        elif method == 'Network.requestWillBeSent' and params['request']['url'].startswith('http'):
            self.errors.append(f"asks the network for {params['request']['url']}")
        return method

    def call(self, method, **params):
        number, self.next = self.next, self.next + 1
        order = {'id': number, 'method': method, 'params': params}
        if hasattr(self, 'session'):
            order['sessionId'] = self.session
        os.write(self.write, json.dumps(order).encode() + b'\0')
        deadline = time.monotonic() + self.timeout
        while True:
            answer = self.message(deadline)
            if answer.get('id') == number:
                if 'error' in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer['result']
            self.note(answer)

    def open(self, path, width=1280, height=800, dark=False, touch=False):
        self.call('Emulation.setDeviceMetricsOverride', width=width, height=height, deviceScaleFactor=1,
                  mobile=touch)
        self.call('Emulation.setTouchEmulationEnabled', enabled=touch)
        scheme = {'name': 'prefers-color-scheme', 'value': 'dark' if dark else 'light'}
        self.call('Emulation.setEmulatedMedia', features=[scheme])
        # answers when the page has been begun
        self.call('Page.navigate', url=f'file://{os.path.abspath(path)}')
        self.run("new Promise(r => document.readyState === 'complete' ? r(0) : addEventListener('load', "
                 "() => r(0)))")
        self.frame()

    def frame(self):
        """Let the page draw."""
        self.run('new Promise(r => requestAnimationFrame(() => requestAnimationFrame(() => r(0))))')

    def run(self, expression):
        answer = self.call('Runtime.evaluate', expression=expression, returnByValue=True, awaitPromise=True)
        if 'exceptionDetails' in answer:
            raise RuntimeError(answer['exceptionDetails'].get('exception', {}).get('description'))
        return answer['result'].get('value')

    def key(self, key, text=None):
        for kind in ('keyDown', 'keyUp'):
            self.call('Input.dispatchKeyEvent', type=kind, key=key, **({'text': text} if text else {}))
        self.frame()

    def mouse(self, kind, x, y, **more):
        self.call('Input.dispatchMouseEvent', type=kind, x=x, y=y, **more)

    def picture(self, path, whole=False):
        shot = self.call('Page.captureScreenshot', format='png', captureBeyondViewport=whole)
        with open(path, 'wb') as f:
            f.write(base64.b64decode(shot['data']))
