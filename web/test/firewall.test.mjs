/**
 * Chromium behind firewalls: its network is a namespace, the gateway and Debian's coturn are in another one, and what comes in there is
 * dropped by nftables. All of it is TLS. Needs root, ip, nft, openssl and turnserver.
 */
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe } from 'node:test';
import { clock, hears, now, openPage, silence, startGateway, test, tone } from './harness.mjs';

const run = (command, ...args) => execFileSync(command, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
const [near, far] = ['n', 'f'].map((side) => `vw${process.pid}${side}`); // namespaces, and their ends of the wire
const inside = (namespace) => ['ip', 'netns', 'exec', namespace];
// Chromium takes no candidate with port 443 of a private address; these are of documentation (RFC 5737).
const [gatewayAddr, turnAddr] = ['203.0.113.2', '203.0.113.3'];
const folder = mkdtempSync(join(tmpdir(), 'voxgate-'));
const [cert, key] = ['cert.pem', 'key.pem'].map((name) => join(folder, name));

/** Why there are no namespaces here. */
function impossible() {
  try {
    run('turnserver', '--version');
    for (const namespace of [near, far]) {
      run('ip', 'netns', 'add', namespace);
      // An address of IPv6 that comes a second later is another network to Chromium, which then gives up what it loads.
      run(...inside(namespace), 'sh', '-c', 'for f in /proc/sys/net/ipv6/conf/*/disable_ipv6; do echo 1 > "$f"; done');
    }
    run('ip', 'link', 'add', near, 'netns', near, 'type', 'veth', 'peer', 'name', far, 'netns', far);
    for (const [namespace, ...addrs] of [[near, '203.0.113.1'], [far, gatewayAddr, turnAddr]]) {
      for (const addr of addrs) run('ip', '-n', namespace, 'addr', 'add', `${addr}/24`, 'dev', namespace);
      for (const device of ['lo', namespace]) run('ip', '-n', namespace, 'link', 'set', device, 'up');
    }
    passes(); // nft is there
    return undefined;
  } catch (e) {
    return String(e);
  }
}

/** Has the firewall let in all but what one of these rules describes. */
function passes(...drops) {
  const nft = (...args) => run(...inside(far), 'nft', ...args);
  nft('add table inet wall; delete table inet wall; add table inet wall; add chain inet wall in { type filter hook input priority 0; }');
  for (const drop of drops) nft(`add rule inet wall in iifname ${far} ${drop} drop`);
}

async function startTURN(secret) {
  const file = join(folder, 'turnserver.conf');
  const told = [ // docs/network.md tells to write this
    'use-auth-secret', `static-auth-secret=${secret}`, 'realm=turn.example.com', 'denied-peer-ip=0.0.0.0-255.255.255.255', `allowed-peer-ip=${gatewayAddr}`,
    'tls-listening-port=443', `cert=${cert}`, `pkey=${key}`,
  ];
  const ours = [`listening-ip=${turnAddr}`, `relay-ip=${turnAddr}`, 'no-cli', 'log-file=stdout', 'pidfile=', `userdb=${join(folder, 'db')}`];
  writeFileSync(file, [...told, ...ours, ''].join('\n'));
  const [command, ...args] = [...inside(far), 'turnserver', '-c', file];
  const child = spawn(command, args, { stdio: 'ignore' });
  process.on('exit', () => child.kill('SIGKILL'));
  while (!run(...inside(far), 'ss', '-ltn').includes(`${turnAddr}:443`)) {
    assert.equal(child.exitCode, null, 'coturn ends');
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  return child;
}

const why = impossible();
let gateway, turn;
before(async () => {
  if (why) return;
  run('openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '1', '-subj', '/CN=test',
    '-addext', `subjectAltName=IP:${gatewayAddr},IP:${turnAddr}`, '-keyout', key, '-out', cert);
  turn = await startTURN('north');
  gateway = await startGateway({
    VOXGATE_ADDR: `${gatewayAddr}:443`, VOXGATE_TCP_PORT: '443', VOXGATE_TLS_CERT: cert, VOXGATE_TLS_KEY: key, VOXGATE_INSECURE: '1',
    VOXGATE_ICE_SERVERS: `turn:${turnAddr}:3478,turns:${turnAddr}:443?transport=tcp`, VOXGATE_TURN_SECRET: 'north',
  }, inside(far));
});
after(async () => {
  await gateway?.stop();
  if (turn) {
    const gone = once(turn, 'exit');
    turn.kill('SIGKILL');
    await gone;
  }
  for (const namespace of [near, far]) {
    try {
      run('ip', 'netns', 'del', namespace);
    } catch {} // there is none
  }
  rmSync(folder, { recursive: true, force: true });
});

/** By what the voice travels. */
const path = (page) =>
  page.evaluate(async () => {
    const stats = await peers.at(-1).getStats();
    const { selectedCandidatePairId } = [...stats.values()].find((s) => s.type === 'transport');
    const pair = stats.get(selectedCandidatePairId);
    const { candidateType, protocol, relayProtocol } = stats.get(pair.localCandidateId);
    return { candidateType, protocol, relayProtocol, port: stats.get(pair.remoteCandidateId).port };
  });

describe('through a firewall', { skip: why && `no namespaces: ${why}` }, () => {
  const networks = [
    { name: 'everything passes: UDP', found: { candidateType: 'host', protocol: 'udp', port: 443 } },
    {
      // Both relays would do where both answer: the browser takes the one that it has checked first.
      name: 'UDP passes, TURN is asked for: relayed over UDP', drops: [`ip daddr ${turnAddr} meta l4proto tcp`],
      options: { iceTransportPolicy: 'relay' }, found: { candidateType: 'relay', relayProtocol: 'udp' },
    },
    {
      name: 'TCP to port 443 of the gateway alone: ICE-TCP', drops: [`ip daddr ${turnAddr}`, 'tcp dport != 443', 'meta l4proto udp'],
      found: { candidateType: 'prflx', protocol: 'tcp', port: 443 },
    },
    {
      name: 'TCP to port 443 alone, TURN is asked for: relayed over TLS', drops: ['tcp dport != 443', 'meta l4proto udp'],
      options: { iceTransportPolicy: 'relay' }, found: { candidateType: 'relay', relayProtocol: 'tls' },
    },
  ];
  test('the voice is heard both ways', { timeout: 60_000 }, async (t) => {
    // One page for all, since each launch takes seconds.
    const page = await openPage({
      url: gateway.url, inside: inside(near), context: { ignoreHTTPSErrors: true }, args: ['--ignore-certificate-errors'],
      sounds: Array(12).fill([silence(0.4), tone(0.6), silence(1.4)]).flat(),
    });
    try {
      for (const { name, drops = [], options = {}, found } of networks) {
        passes(...drops);
        const from = await now(page);
        await page.evaluate(async (options) => {
          const { connect } = await import('./voxgate.js');
          window.session = await connect({ url: 'ws', transport: 'webrtc', ...options });
        }, options);
        const connected = await now(page);
        await hears(page, { tone: 0.3, after: connected });
        const by = await path(page);
        t.diagnostic(`${name}: connected after ${Math.round(connected - from)} ms, by ${JSON.stringify(by)}`);
        assert.deepEqual({ ...by, ...found }, by, name);
        await page.evaluate(() => session.close());
      }
      assert.deepEqual(page.complaints, []);
    } catch (e) {
      t.diagnostic(gateway.log.join('\n'));
      throw e;
    } finally {
      await page.quit();
    }
  });

  test('where nothing but the WebSocket passes nobody waits for WebRTC', { timeout: 60_000 }, async (t) => {
    const judge = clock(t);
    passes('meta l4proto udp');
    const plain = await startGateway({ VOXGATE_ADDR: `${gatewayAddr}:8443`, VOXGATE_TLS_CERT: cert, VOXGATE_TLS_KEY: key, VOXGATE_INSECURE: '1' }, inside(far));
    const page = await openPage({
      url: plain.url, inside: inside(near), context: { ignoreHTTPSErrors: true }, args: ['--ignore-certificate-errors'],
      sounds: Array(8).fill([silence(0.4), tone(0.6), silence(1.4)]).flat(),
    });
    try {
      const took = await page.evaluate(async () => {
        const { connect } = await import('./voxgate.js');
        const begun = performance.now();
        window.session = await connect({ url: 'ws' });
        return performance.now() - begun;
      });
      t.diagnostic(`connected after ${Math.round(took)} ms`);
      judge(() => assert.ok(took < 3_000, `connected after ${took} ms`)); // WebRTC would be given up after 5 s
      await hears(page, { tone: 0.3, after: await now(page) });
      assert.equal(await page.evaluate(() => session.transport), 'websocket');
      await page.evaluate(() => session.close());
      assert.deepEqual(page.complaints, []);
    } finally {
      await page.quit();
      await plain.stop();
    }
  });
});
