package live

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// grammar lists every field that a client may send: one type per line, with its fields and their types. A capitalized
// type is defined on another line. [] means a list, `map` an object with arbitrary names, and `any` a value that is not
// validated. A line with = defines an enumeration. A line that begins with a tab continues the previous line.
//
// Google rejects a message if one name in it is unknown. The fields are from ai.google.dev/api/live, and those of
// Schema from ai.google.dev/api/caching#Schema. The wording of errors is from js-genai #696 and gptel #806. Fields that
// the Live API does not support, such as responseSchema, are omitted.
//
// We assume that Google rejects unknown values of an enumeration. Lower-case values are accepted: MCP clients and
// Google's own examples send "type":"object". Errors about requests with lower-case values mention other fields
// (gitlab-mcp #166, azure-devops-mcp #145).
const grammar = `
Message setup:Setup clientContent:ClientContent realtimeInput:RealtimeInput toolResponse:ToolResponse contextUpdate:ContextUpdate
Setup model:string generationConfig:GenerationConfig systemInstruction:Content tools:[]Tool realtimeInputConfig:RealtimeInputConfig
	sessionResumption:SessionResumption contextWindowCompression:Compression inputAudioTranscription:Transcription
	outputAudioTranscription:Transcription proactivity:Proactivity explicitVadSignal:bool avatarConfig:any
	safetySettings:[]SafetySetting historyConfig:HistoryConfig labels:map
GenerationConfig candidateCount:int maxOutputTokens:int temperature:number topP:number topK:int presencePenalty:number
	frequencyPenalty:number seed:int responseModalities:[]Modality mediaResolution:string enableAffectiveDialog:bool
	speechConfig:SpeechConfig thinkingConfig:ThinkingConfig translationConfig:TranslationConfig
SpeechConfig voiceConfig:VoiceConfig languageCode:string multiSpeakerVoiceConfig:any
VoiceConfig prebuiltVoiceConfig:PrebuiltVoice replicatedVoiceConfig:any voice:string
PrebuiltVoice voiceName:string
ThinkingConfig includeThoughts:bool thinkingBudget:int thinkingLevel:ThinkingLevel
TranslationConfig targetLanguageCode:string echoTargetLanguage:bool
Tool functionDeclarations:[]Function googleSearch:any googleSearchRetrieval:any codeExecution:any urlContext:any googleMaps:any
	enterpriseWebSearch:any
Function name:string description:string parameters:Schema parametersJsonSchema:any response:Schema responseJsonSchema:any
	behavior:Behavior
Schema type:Type format:string title:string description:string nullable:bool enum:[]string items:Schema properties:map[Schema]
	required:[]string propertyOrdering:[]string anyOf:[]Schema maxItems:int minItems:int maxLength:int minLength:int maxProperties:int
	minProperties:int maximum:number minimum:number pattern:string default:any example:any
RealtimeInputConfig automaticActivityDetection:ActivityDetection activityHandling:ActivityHandling turnCoverage:TurnCoverage
	interimTranscriptTimestampEnabled:bool
ActivityDetection disabled:bool startOfSpeechSensitivity:StartSensitivity endOfSpeechSensitivity:EndSensitivity prefixPaddingMs:int
	silenceDurationMs:int
SessionResumption handle:string transparent:bool
Compression triggerTokens:int slidingWindow:SlidingWindow
SlidingWindow targetTokens:int
Transcription languageCodes:[]string languageAuto:any languageHints:any customVocabulary:[]string adaptationPhrases:[]string
	diarization:bool wordTimestamp:bool mode:TranscriptionMode sourceText:string
Proactivity proactiveAudio:bool proactiveVideo:bool
SafetySetting category:string method:string threshold:string
HistoryConfig initialHistoryInClientContent:bool
Content role:string parts:[]Part
Part text:string inlineData:Blob fileData:any functionCall:any functionResponse:any executableCode:any codeExecutionResult:any
	thought:bool thoughtSignature:bytes videoMetadata:any mediaResolution:any
Blob mimeType:string data:bytes displayName:string
ClientContent turns:[]Content turnComplete:bool
RealtimeInput audio:Blob video:Blob text:string audioStreamEnd:bool activityStart:Empty activityEnd:Empty mediaChunks:[]Blob
ToolResponse functionResponses:[]FunctionResponse
FunctionResponse id:string name:string response:map scheduling:Scheduling willContinue:bool parts:any
ContextUpdate systemInstruction:Content tools:ToolsUpdate
ToolsUpdate tools:[]Tool
Empty
=Modality MODALITY_UNSPECIFIED TEXT IMAGE AUDIO VIDEO
=ThinkingLevel THINKING_LEVEL_UNSPECIFIED MINIMAL LOW MEDIUM HIGH
=Type TYPE_UNSPECIFIED STRING NUMBER INTEGER BOOLEAN ARRAY OBJECT NULL
=Behavior UNSPECIFIED BLOCKING NON_BLOCKING
=Scheduling SCHEDULING_UNSPECIFIED SILENT WHEN_IDLE INTERRUPT
=ActivityHandling ACTIVITY_HANDLING_UNSPECIFIED START_OF_ACTIVITY_INTERRUPTS NO_INTERRUPTION
=TurnCoverage TURN_COVERAGE_UNSPECIFIED TURN_INCLUDES_ONLY_ACTIVITY TURN_INCLUDES_ALL_INPUT TURN_INCLUDES_AUDIO_ACTIVITY_AND_ALL_VIDEO
=StartSensitivity START_SENSITIVITY_UNSPECIFIED START_SENSITIVITY_HIGH START_SENSITIVITY_LOW
=EndSensitivity END_SENSITIVITY_UNSPECIFIED END_SENSITIVITY_HIGH END_SENSITIVITY_LOW
=TranscriptionMode MODE_UNSPECIFIED VERBATIM SMART
`

// unnumbered lists the enumerations whose values in grammar are not in the order of their numbers, or whose numbers are
// unknown.
var unnumbered = []string{"ThinkingLevel", "TranscriptionMode"}

// types and enums are the parsed grammar. types maps the name of a type to its fields and their types. enums maps the
// name of an enumeration to its values.
var types, enums = func() (map[string]map[string]string, map[string][]string) {
	types, enums := make(map[string]map[string]string), make(map[string][]string)
	for line := range strings.Lines(strings.ReplaceAll(strings.TrimSpace(grammar), "\n\t", " ")) {
		words := strings.Fields(line)
		if name, isEnum := strings.CutPrefix(words[0], "="); isEnum {
			enums[name] = words[1:]
			continue
		}
		fields := make(map[string]string, len(words)-1)
		for _, word := range words[1:] {
			name, kind, _ := strings.Cut(word, ":")
			fields[name] = kind
		}
		types[words[0]] = fields
	}
	return types, enums
}()

// decodeAndCheck decodes a JSON object and checks it against a type (kind) of the grammar. It returns the object with
// names in camelCase. Its error is a Closing in Google's wording.
func decodeAndCheck(data []byte, kind, path string) (map[string]any, error) {
	tree, _ := Decode(bytes.TrimPrefix(data, []byte("\ufeff")))
	fields, ok := tree.(map[string]any)
	if !ok {
		return nil, newInvalidClosing("Invalid JSON payload received. %s", unexpectedTokenText(data))
	}
	return fitObject(fields, kind, path)
}

// Decode decodes one JSON value, with numbers as json.Number.
func Decode(data []byte) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, errors.New("there is more after the value")
	}
	return value, nil
}

func unexpectedTokenText(data []byte) string {
	return "Unexpected token near " + strconv.Quote(string(bytes.ToValidUTF8(data[:min(len(data), 20)], nil)))
}

// fitValue checks a value against a type of the grammar. It converts enumerations to capitals and bytes to standard
// base64. It accepts the other forms of proto3 JSON (protobuf.dev/programming-guides/json) and, like Google, a single
// value in place of a list.
func fitValue(value any, kind, path string) (any, error) {
	if value == nil || kind == "any" {
		return value, nil
	}
	wrong := func() (any, error) {
		text, isText := value.(string)
		if !isText {
			encoded, _ := json.Marshal(value) // cannot fail: the value was decoded from JSON
			text = string(encoded)
		}
		name, _, _ := strings.Cut(strings.ToUpper(kind), "[")
		return nil, newInvalidClosing("Invalid value at '%s' (%s), %.40q", path, name, text)
	}
	if element, ok := strings.CutPrefix(kind, "[]"); ok {
		list, ok := value.([]any)
		if !ok { // a single value in place of a list
			one, err := fitValue(value, element, path)
			return []any{one}, err
		}
		out := make([]any, len(list))
		for i, v := range list {
			var err error
			if out[i], err = fitValue(v, element, fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	ok := false
	if values, isEnum := enums[kind]; isEnum {
		if text, isText := value.(string); isText && slices.Contains(values, strings.ToUpper(text)) {
			return strings.ToUpper(text), nil
		}
		if number, isNumber := value.(json.Number); isNumber && !slices.Contains(unnumbered, kind) {
			if n, err := strconv.Atoi(string(number)); err == nil && n >= 0 && n < len(values) {
				return values[n], nil
			}
		}
		return wrong()
	}
	switch kind {
	case "string":
		_, ok = value.(string)
	case "bool":
		if _, ok = value.(bool); !ok {
			switch value {
			case "true":
				return true, nil
			case "false":
				return false, nil
			}
		}
	case "bytes":
		if text, isText := value.(string); isText {
			text = strings.TrimRight(strings.NewReplacer("-", "+", "_", "/").Replace(text), "=")
			if raw, err := base64.RawStdEncoding.DecodeString(text); err == nil {
				return base64.StdEncoding.EncodeToString(raw), nil
			}
		}
	case "number":
		_, err := strconv.ParseFloat(numberText(value), 64)
		ok = err == nil
	case "int":
		f, err := strconv.ParseFloat(numberText(value), 64)
		if ok = err == nil && f == float64(int64(f)); ok {
			return json.Number(strconv.FormatInt(int64(f), 10)), nil
		}
	case "map":
		_, ok = value.(map[string]any)
	default:
		if fields, isObject := value.(map[string]any); isObject {
			return fitObject(fields, kind, path)
		}
	}
	if !ok {
		return wrong()
	}
	return value, nil
}

// numberText returns the text of a number, which may be written as a string. For other types it returns "".
func numberText(value any) string {
	switch v := value.(type) {
	case json.Number:
		return string(v)
	case string:
		return v
	}
	return ""
}

func fitObject(fields map[string]any, kind, path string) (map[string]any, error) {
	out := make(map[string]any, len(fields))
	element, isMap := strings.CutPrefix(kind, "map[")
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		key, of := name, strings.TrimSuffix(element, "]")
		if !isMap {
			key = toCamelCase(name)
			var known bool
			if of, known = types[kind][key]; !known {
				at := ""
				if path != "" {
					at = fmt.Sprintf(" at '%s'", path)
				}
				return nil, newInvalidClosing("Invalid JSON payload received. Unknown name %q%s: Cannot find field.", name, at)
			}
		}
		at := toSnakeCase(key)
		if path != "" {
			at = path + "." + at
		}
		fitted, err := fitValue(fields[name], of, at)
		if err != nil {
			return nil, err
		}
		if fitted != nil {
			out[key] = fitted
		}
	}
	return out, nil
}

// toCamelCase converts a name from snake_case to camelCase. It does not change dots.
func toCamelCase(name string) string {
	var b strings.Builder
	up := false
	for _, r := range name {
		switch {
		case r == '_':
			up = true
		case up && r >= 'a' && r <= 'z':
			b.WriteRune(r - 'a' + 'A')
			up = false
		default:
			b.WriteRune(r)
			up = false
		}
	}
	return b.String()
}

// ToCamelCase converts the names in a JSON tree to camelCase, because proto3 JSON accepts snake_case, too. Names within
// args and response belong to functions, and are not changed.
func ToCamelCase(tree any) any {
	switch v := tree.(type) {
	case []any:
		for i := range v {
			v[i] = ToCamelCase(v[i])
		}
	case map[string]any:
		named := make(map[string]any, len(v))
		for name, value := range v {
			if name = toCamelCase(name); name != "args" && name != "response" {
				value = ToCamelCase(value)
			}
			named[name] = value
		}
		return named
	}
	return tree
}

// toSnakeCase converts a name to snake_case, as in Google's error messages.
func toSnakeCase(name string) string {
	var b strings.Builder
	for _, r := range name {
		if r >= 'A' && r <= 'Z' {
			b.WriteByte('_')
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}
