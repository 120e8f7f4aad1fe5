import { tool } from 'voxgate';

/** What the model may call: `city` is a string here, because the schema says so. */
export const tools = {
  opening_hours: tool({
    description: 'When the shop in a city is open.',
    title: 'Looking up the opening hours…',
    doneTitle: 'Looked up the opening hours',
    parameters: {
      type: 'object',
      properties: { city: { type: 'string' }, day: { type: 'string', enum: ['today', 'tomorrow'] } },
      required: ['city'],
    },
    run: ({ city, day }) => ({ city, day: day ?? 'today', open: city.length > 5 ? '9 to 18' : '10 to 20' }),
  }),
};
