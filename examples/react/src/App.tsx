import { useEffect, useRef, useState, type FormEvent, type KeyboardEvent } from 'react';
import { DeviceSelect, MicButton, Orb, Status, Transcript, useVoxgate } from 'voxgate/react';

const MICROPHONE = ['M12 3a3 3 0 0 1 3 3v5a3 3 0 0 1-6 0V6a3 3 0 0 1 3-3ZM6 11a6 6 0 0 0 12 0M12 17v4', 'M4 4l16 16'];
const HANG_UP = ['M3.5 14.5c-.9-2 .1-3.7 1.7-4.7 4-2.4 9.6-2.4 13.6 0 1.6 1 2.6 2.7 1.7 4.7l-.6 1.2-4.1-1.4v-2.4c-2.5-.7-5.1-.7-7.6 0v2.4l-4.1 1.4Z'];
const UP = ['M12 19V5M6 11l6-6 6 6'];
const DOWN = ['M12 5v14M6 13l6 6 6-6'];
const SLIDERS = ['M4 8h9M17 8h3M4 16h3M11 16h9M15 6v4M9 14v4'];

const QUESTIONS = ['When is the shop in Rome open?', 'Is the one in Vienna open tomorrow?'];

const FEW = 5; // turns: with more the words need the room of the orb
const AWAY = 48; // pixels from the end: a person who scrolled further up reads there

/** The second path is the slash through a muted microphone. */
const Icon = ({ paths }: { paths: string[] }) => (
  <svg viewBox="0 0 24 24" aria-hidden="true">{paths.map((d, i) => <path key={d} d={d} className={i ? 'slash' : undefined} />)}</svg>
);

/** How long the conversation has been on, with what it goes on with. */
function Clock() {
  const { state, session, turns } = useVoxgate();
  const [seconds, count] = useState(0);
  const on = state !== 'closed' && state !== 'connecting';
  useEffect(() => {
    if (session && !turns.some(({ role }) => role === 'model')) count(0);
  }, [session]);
  useEffect(() => {
    const { resumed, startedAt } = session?.setup ?? {};
    if (on && resumed && startedAt) count(Math.max(0, Math.round((Date.now() - startedAt) / 1_000))); // the page was loaded again
    const timer = on ? setInterval(() => count((n) => n + 1), 1_000) : undefined;
    return () => clearInterval(timer);
  }, [on]);
  return on && <span className="clock">{Math.floor(seconds / 60)}:{String(seconds % 60).padStart(2, '0')}</span>;
}

/** Copies what was said. */
function CopyButton() {
  const { turns } = useVoxgate();
  const [isCopied, setCopied] = useState(false);
  useEffect(() => setCopied(false), [turns]);
  const copy = async () => {
    await navigator.clipboard.writeText(turns.map(({ role, text, heard }) => `${role === 'user' ? 'You' : 'My assistant'}: ${heard ?? text}`).join('\n\n'));
    setCopied(true);
  };
  return <button className="chip" onClick={copy}>{isCopied ? 'Copied' : 'Copy'}</button>;
}

export function App() {
  const { state, mic, session, turns, start, end, send, interrupt } = useVoxgate();
  const [text, setText] = useState('');
  const [isAway, setAway] = useState(false);
  const thread = useRef<HTMLElement>(null);
  const devices = useRef<HTMLElement>(null);
  const on = state !== 'closed';
  const over = Boolean(session) && !on && turns.length > 0; // without a session they are those of a reload
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (text.trim()) send(text.trim());
    setText('');
  };
  const sendOnEnter = (event: KeyboardEvent<HTMLTextAreaElement>) => {
    if (event.key === 'Enter' && !event.shiftKey && !event.nativeEvent.isComposing) submit(event);
  };
  const showEnd = () => {
    thread.current?.scrollTo({ top: 0 });
    thread.current?.focus(); // the button goes
  };
  return (
    <div className={`voxgate app ${turns.length ? (turns.length < FEW ? 'roomy' : '') : 'fresh'}`}>
      <header>
        <h1 className="brand">My assistant</h1>
        <Clock />
        {turns.length > 0 && <CopyButton />}
        <span className="devices icon" ref={devices}><Icon paths={SLIDERS} /><DeviceSelect aria-label="Microphone" title="Microphone" standard="Default microphone" /></span>
      </header>
      <main ref={thread} tabIndex={0} aria-label="Conversation" onScroll={({ currentTarget }) => setAway(currentTarget.scrollTop < -AWAY)}>
        {turns.length ? <Transcript className="transcript" /> : mic !== 'refused' && <>
          <h2>How can I help?</h2>
          <p>{QUESTIONS.map((question) => <button key={question} className="chip" onClick={() => send(question)}>{question}</button>)}</p>
        </>}
      </main>
      <footer>
        {isAway && <button className="icon down" onClick={showEnd} aria-label="To the newest words" title="To the newest words"><Icon paths={DOWN} /></button>}
        {!over && <div className="dock">
          {on && mic !== 'refused' && <MicButton className="icon"><Icon paths={MICROPHONE} /></MicButton>}
          <button className="orb" onClick={state === 'speaking' ? interrupt : start} aria-label={on ? 'Interrupt' : 'Start'}>
            <Orb />
          </button>
          {on && <button className="icon end" onClick={end} aria-label="End" title="End"><Icon paths={HANG_UP} /></button>}
        </div>}
        <Status className="where" offers={over ? ['type'] : ['orb', 'type', 'microphone', 'devices']} onChooseMicrophone={() => devices.current?.querySelector('select')?.focus()}>
          {over && <button onClick={start}>New conversation</button>}
        </Status>
        <form className="type" onSubmit={submit}>
          <textarea rows={1} value={text} onChange={(event) => setText(event.target.value)} onKeyDown={sendOnEnter} enterKeyHint="send" aria-label="Message" placeholder="Or type a message" />
          <button className="icon" aria-label="Send" title="Send"><Icon paths={UP} /></button>
        </form>
      </footer>
    </div>
  );
}
