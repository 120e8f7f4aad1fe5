import { useState, type FormEvent } from 'react';
import { DeviceSelect, MicButton, Orb, Transcript, useVoxgate } from 'voxgate/react';

export function App() {
  const { state, turns, sentence, error, start, end, send, interrupt } = useVoxgate();
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
        <DeviceSelect aria-label="Microphone" standard="Default microphone" />
      </header>
      <main tabIndex={0} aria-label="Conversation">
        {turns.length ? <Transcript className="transcript" /> : <p>Ask when the shop in Rome is open.</p>}
      </main>
      <footer>
        <p className="status" role="status">{error ? error.message : sentence || 'Press the orb and speak.'}</p>
        <div className="dock">
          {on && <MicButton />}
          <button className="orb" onClick={state === 'speaking' ? interrupt : start} aria-label={on ? 'Interrupt' : 'Start'}>
            <Orb />
          </button>
          {on && <button className="end" onClick={end}>End</button>}
        </div>
        <form className="type" onSubmit={submit}>
          <input value={text} onChange={(event) => setText(event.target.value)} aria-label="Message" placeholder="Or type a message" />
          <button className="primary">Send</button>
        </form>
      </footer>
    </div>
  );
}
