import { StrictMode } from 'react';
import { createRoot } from 'react-dom/client';
import { VoxgateProvider } from 'voxgate/react';
import { App } from './App';
import { tools } from './tools';
import 'voxgate/looks.css'; // the look of the parts
import './style.css'; // where they stand

const url = import.meta.env.VITE_GATEWAY ?? 'ws://localhost:3001/ws';

createRoot(document.getElementById('root')!).render(
  <StrictMode>
    <VoxgateProvider url={url} who="My assistant" lang="en" resume="example" tools={tools}>
      <App />
    </VoxgateProvider>
  </StrictMode>,
);
