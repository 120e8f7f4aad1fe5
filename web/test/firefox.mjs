/** Firefox, as Debian has it, with a sound card that PulseAudio plays: without one Firefox runs no AudioContext. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { firefox } from 'playwright-core';

const firefoxBinary = process.env.FIREFOX ?? '/usr/bin/firefox-esr';

/** What is played goes nowhere, and the microphone hears the file that it is given. */
async function openSoundCard(folder) {
  const { PATH } = process.env;
  const env = { PATH, HOME: folder, XDG_RUNTIME_DIR: folder, PULSE_SERVER: `unix:${folder}/native` };
  const modules = [
    'module-null-sink sink_name=speaker norewinds=1', // or it begins up to 2 s late
    'module-null-sink sink_name=microphone norewinds=1 sink_properties=device.description=microphone',
    `module-native-protocol-unix auth-anonymous=1 socket=${folder}/native`,
  ];
  const args = ['-n', '--daemonize=no', '--use-pid-file=no', '--exit-idle-time=-1', '--log-level=info'];
  const daemon = spawn('pulseaudio', [...args, ...modules.flatMap((m) => ['-L', m])], { env, stdio: ['ignore', 'ignore', 'pipe'] });
  let player;
  const kill = () => [daemon, player].forEach((p) => p?.kill('SIGKILL'));
  process.on('exit', kill);
  await new Promise((resolve, reject) => {
    daemon.once('error', reject);
    daemon.once('exit', (code) => reject(new Error(`PulseAudio ended with ${code}`)));
    createInterface({ input: daemon.stderr }).on('line', (line) => line.includes('startup complete') && resolve());
  });
  return {
    env,
    hears(wav) {
      player?.kill();
      player = spawn('paplay', ['--device=microphone', '--latency-msec=40', wav], { env, stdio: 'ignore' });
      player.on('error', () => {});
    },
    async close() {
      process.off('exit', kill);
      const gone = daemon.exitCode === null && !daemon.signalCode && once(daemon, 'exit');
      kill();
      await gone;
    },
  };
}

/** What WebDriver BiDi cannot ask for. */
const looks = ({ colorScheme, forcedColors, reducedMotion }) => ({
  'layout.css.prefers-color-scheme.content-override': colorScheme === 'dark' ? 0 : 1,
  'ui.prefersReducedMotion': reducedMotion === 'reduce' ? 1 : 0,
  'browser.display.document_color_use': forcedColors === 'active' ? 2 : 1,
});

const devices = {
  'media.navigator.streams.fake': true, // the camera
  'media.audio_loopback_dev': 'Monitor of microphone',
};
const microphone = {
  granted: { ...devices, 'media.navigator.permission.disabled': true },
  denied: { ...devices, 'permissions.default.microphone': 2, 'permissions.default.camera': 2 },
  none: { 'media.navigator.permission.disabled': true, 'media.audio_loopback_dev': 'none', 'media.video_loopback_dev': 'none' },
};

/**
 * Starts it. `browser.hears` has the microphone hear a WAV file from now on; `browser.saved` waits for the next file that it saves.
 * @param {{mic?: 'granted'|'denied'|'none', context?: object}} o
 */
export async function launchFirefox({ mic = 'granted', context = {} }) {
  const folder = mkdtempSync(join(tmpdir(), 'voxgate-firefox-'));
  const saved = join(folder, 'saved');
  mkdirSync(saved);
  const card = await openSoundCard(folder);
  const browser = await firefox.launch({
    timeout: 180_000,
    channel: 'moz-firefox', // the one without Playwright's own patches
    executablePath: firefoxBinary,
    env: { ...process.env, ...card.env },
    downloadsPath: saved,
    firefoxUserPrefs: {
      ...microphone[mic], ...looks(context),
      'media.autoplay.default': 0,
      'media.autoplay.blocking_policy': 0,
      'dom.events.testing.asyncClipboard': true, // or it asks whoever pastes
    },
  });
  const { close } = browser;
  return Object.assign(browser, {
    hears: card.hears,
    /** Playwright is not told of what a link saves that is no navigation. */
    async saved() {
      for (;;) {
        const [name = '', part] = readdirSync(saved);
        const path = join(saved, name);
        const size = name && statSync(path, { throwIfNoEntry: false })?.size; // none at first
        if (size && !part && !name.endsWith('.part')) {
          const content = readFileSync(path);
          rmSync(path);
          return { name, content };
        }
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
    },
    async close() {
      await close.call(browser);
      await card.close();
      rmSync(folder, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 });
    },
  });
}
