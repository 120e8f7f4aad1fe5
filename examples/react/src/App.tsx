import { useState, type FormEvent } from 'react';
import { DeviceSelect, MicButton, Orb, Transcript, useVoxgate } from 'voxgate/react';

export function App() {
  const { state, sentence, error, start, end, send, interrupt } = useVoxgate();
  const [text, setText] = useState('');
  const on = state !== 'closed';
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (text.trim()) send(text.trim());
    setText('');
  };
  return (
    <main>
      <h1>Talk with Gemini</h1>
      <button className="orb" onClick={state === 'speaking' ? interrupt : start} aria-label={on ? 'Interrupt' : 'Start'}>
        <Orb />
      </button>
      <p role="status">{error ? error.message : sentence || 'Press the orb and speak.'}</p>
      <Transcript className="transcript" />
      <form onSubmit={submit}>
        <input value={text} onChange={(event) => setText(event.target.value)} aria-label="Message" placeholder="Or type" />
        <button>Send</button>
      </form>
      <div className="row">
        {on && <MicButton />}
        {on && <button onClick={end}>End</button>}
        <DeviceSelect aria-label="Microphone" />
      </div>
    </main>
  );
}
