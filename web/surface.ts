// The library is what its types say. Only checked, by `npm run types`.
import * as canvas from './canvas.js';
import type * as declaredCanvas from './declared/canvas.d.ts';
import type * as declaredNative from './declared/native.d.ts';
import type * as declaredOrb from './declared/orb.d.ts';
import type * as declaredReact from './declared/react.d.ts';
import * as conversation from './conversation.js';
import type * as declaredConversation from './declared/conversation.d.ts';
import * as native from './native.js';
import * as orb from './orb.js';
import * as react from './react.js';
import type * as declared from './types.d.ts';
import * as library from './voxgate.js';

export const surface: [typeof declared, typeof declaredCanvas, typeof declaredNative, typeof declaredOrb, typeof declaredReact, typeof declaredConversation] =
  [library, canvas, native, orb, react, conversation];
