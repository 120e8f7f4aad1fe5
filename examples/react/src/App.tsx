import { useState, type FormEvent } from 'react';
import { DeviceSelect, MicButton, Orb, Status, Transcript, useVoxgate } from 'voxgate/react';

const MICROPHONE = ['M12 3a3 3 0 0 1 3 3v5a3 3 0 0 1-6 0V6a3 3 0 0 1 3-3ZM6 11a6 6 0 0 0 12 0M12 17v4', 'M4 4l16 16'];
const CROSS = ['M6 6l12 12M18 6 6 18'];
const ARROW = ['M12 19V5M6 11l6-6 6 6'];

/** The second path is the slash through a muted microphone. */
const Icon = ({ paths }: { paths: string[] }) => (
  <svg viewBox="0 0 24 24" aria-hidden="true">{paths.map((d, i) => <path key={d} d={d} className={i ? 'slash' : undefined} />)}</svg>
);

export function App() {
  const { state, turns, start, end, send, interrupt } = useVoxgate();
  const [text, setText] = useState('');
  const on = state !== 'closed';
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (text.trim()) send(text.trim());
    setText('');
  };
  return (
    <div className={`voxgate app ${turns.length ? '' : 'fresh'}`}>
      <header>
        <h1 className="brand">My assistant</h1>
        <DeviceSelect aria-label="Microphone" standard="Microphone" />
      </header>
      <main tabIndex={0} aria-label="Conversation">
        {turns.length ? <Transcript className="transcript" /> : <p>Ask when the shop in Rome is open.</p>}
      </main>
      <footer>
        <div className="dock">
          {on && <MicButton className="icon"><Icon paths={MICROPHONE} /></MicButton>}
          <button className="orb" onClick={state === 'speaking' ? interrupt : start} aria-label={on ? 'Interrupt' : 'Start'}>
            <Orb />
          </button>
          {on && <button className="icon end" onClick={end} aria-label="End" title="End"><Icon paths={CROSS} /></button>}
        </div>
        <Status className="where" offers={['orb', 'type', 'microphone', 'devices']} />
        <form className="type" onSubmit={submit}>
          <input value={text} onChange={(event) => setText(event.target.value)} aria-label="Message" placeholder="Or type a message" />
          <button className="icon" aria-label="Send" title="Send"><Icon paths={ARROW} /></button>
        </form>
      </footer>
    </div>
  );
}
