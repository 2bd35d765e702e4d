package openai

import (
	"fmt"
	"strconv"
)

// The error types: a closed set, as clients and metrics branch on them. Those that TileRT nodes use keep the node's spelling.
const (
	// The request is at fault.
	TypeInvalidJSON           = "invalid_json"            // the body is not one JSON object
	TypeInvalidParameter      = "invalid_parameter"       // a field has a wrong type or range
	TypeInvalidLogprobs       = "invalid_logprobs"        // logprobs and top_logprobs as they cannot be served
	TypeInvalidGrammar        = "invalid_grammar"         // response_format, regex or ebnf
	TypeContextLengthExceeded = "context_length_exceeded" // the prompt does not fit; only ever for that
	TypeBadRequest            = "bad_request"             // HTTP itself
	TypeUnauthorized          = "unauthorized"
	TypeNotFound              = "not_found"
	TypeMethodNotAllowed      = "method_not_allowed"
	TypePayloadTooLarge       = "payload_too_large"
	TypeHeaderTooLarge        = "header_too_large"
	TypeUnsupportedMediaType  = "unsupported_media_type"

	// The deployment cannot do what was asked for.
	TypeCapabilityUnavailable     = "capability_unavailable"
	TypeLogprobsUnavailable       = "logprobs_unavailable"
	TypeGrammarUnsupported        = "grammar_unsupported"
	TypeGrammarBackendUnavailable = "grammar_backend_unavailable"

	// No slot was to be had.
	TypeDecodeBusy   = "decode_busy"
	TypeQueueFull    = "queue_full"
	TypeQueueTimeout = "queue_timeout"
	TypeDraining     = "draining"

	// Work was begun and failed.
	TypeGrammarViolation   = "grammar_violation"
	TypeRequestCancelled   = "request_cancelled"
	TypePrefillFailed      = "prefill_failed"
	TypeKVTransferTimeout  = "kv_transfer_timeout"
	TypeDecodeFailed       = "decode_failed"
	TypeDecodeTruncated    = "decode_truncated"
	TypeDecodeStreamFailed = "decode_stream_failed"
	TypeInternalError      = "internal_error"
)

// statuses gives each type its HTTP status. It is the closed set itself: a type without a row here does not exist.
var statuses = map[string]int{
	TypeInvalidJSON:           400,
	TypeInvalidParameter:      400,
	TypeInvalidLogprobs:       400,
	TypeInvalidGrammar:        400,
	TypeContextLengthExceeded: 400,
	TypeBadRequest:            400,
	TypeUnauthorized:          401,
	TypeNotFound:              404,
	TypeMethodNotAllowed:      405,
	TypePayloadTooLarge:       413,
	TypeUnsupportedMediaType:  415,
	TypeHeaderTooLarge:        431,

	TypeCapabilityUnavailable:     501,
	TypeLogprobsUnavailable:       501,
	TypeGrammarUnsupported:        501,
	TypeGrammarBackendUnavailable: 500,

	TypeDecodeBusy:   429,
	TypeQueueFull:    429,
	TypeQueueTimeout: 429,
	TypeDraining:     503,

	TypeGrammarViolation:   400,
	TypeRequestCancelled:   499,
	TypePrefillFailed:      502,
	TypeKVTransferTimeout:  504,
	TypeDecodeFailed:       502,
	TypeDecodeTruncated:    502,
	TypeDecodeStreamFailed: 502,
	TypeInternalError:      500,
}

// StatusOf is the HTTP status that goes with an error type, and whether the type is one of the closed set.
func StatusOf(errorType string) (status int, known bool) {
	status, known = statuses[errorType]
	return status, known
}

// Error is a refusal or failure as the client sees it. It is never changed after it was made.
type Error struct {
	Status     int    // HTTP status, also error.code in the body
	Type       string // one of the Type constants
	Message    string // for people; names the field and says what would be right
	Param      string // the request's field, or ""
	RetryAfter int    // seconds for the Retry-After header; 0 sends none
}

// Errorf makes an Error of one of the closed set of types, with the status that goes with it.
func Errorf(errorType, format string, args ...any) *Error {
	status, known := statuses[errorType]
	if !known {
		panic("BUG: no such error type: " + errorType)
	}
	return &Error{Status: status, Type: errorType, Message: fmt.Sprintf(format, args...)}
}

// About names the request's field that the error is about.
func (e *Error) About(param string) *Error {
	e.Param = param
	return e
}

// Error makes it an error for logs and tests.
func (e *Error) Error() string {
	return strconv.Itoa(e.Status) + " " + e.Type + ": " + e.Message
}

// AppendJSON appends the body of the reply, on one line and without a newline, so that it serves as the data of an SSE event too:
//
//	{"error":{"message":"…","type":"…","param":null,"code":400},"error_type":"…","rid":null}
//
// The nested object is the form that every SDK reads; error_type and rid are where clients of the TileRT router look for them.
// rid is the request's id as the nodes know it, or "" before there is one.
func (e *Error) AppendJSON(dst []byte, rid string) []byte {
	dst = append(dst, `{"error":{"message":`...)
	dst = AppendString(dst, e.Message)
	dst = append(dst, `,"type":`...)
	dst = AppendString(dst, e.Type)
	dst = append(dst, `,"param":`...)
	dst = appendStringOrNull(dst, e.Param)
	dst = append(dst, `,"code":`...)
	dst = strconv.AppendInt(dst, int64(e.Status), 10)
	dst = append(dst, `},"error_type":`...)
	dst = AppendString(dst, e.Type)
	dst = append(dst, `,"rid":`...)
	dst = appendStringOrNull(dst, rid)
	return append(dst, '}')
}

// JSON is AppendJSON into a new slice.
func (e *Error) JSON(rid string) []byte {
	return e.AppendJSON(make([]byte, 0, 160+len(e.Message)+len(rid)), rid)
}

func appendStringOrNull(dst []byte, s string) []byte {
	if s == "" {
		return append(dst, "null"...)
	}
	return AppendString(dst, s)
}
