package sim

// libraryIDs were made with version 0.23 of the tokenizers library from tokenizer.json.
var libraryIDs = map[string][]int{
	"The quick brown fox jumps over the lazy dog.":                                          {1279, 866, 358, 526, 618, 804, 1042, 649, 450, 13},
	"plan</think>Hello  \n\n world":                                                         {79, 75, 1396, 1428, 1287, 75, 75, 78, 1408, 1407, 1200},
	"<tool_call>get_weather<arg_key>city</arg_key><arg_value>Paris</arg_value></tool_call>": {1429, 1304, 62, 1310, 1433, 1336, 1434, 1435, 47, 64, 81, 72, 82, 1436, 1430},
	"\u4eca\u5929 it's 12345 a1b2 \t x\r\n":                                                 {160, 119, 232, 161, 97, 102, 609, 6, 82, 220, 16, 17, 18, 19, 20, 256, 16, 65, 17, 220, 197, 1208, 201, 198},
	"   a  ":                                                                                {1408, 256, 1408},
	"[gMASK]<sop><|user|>hi<|assistant|>":                                                   {1419, 1421, 1424, 71, 72, 1425},
	"<<tool_call>> end  . ... x\u00a0y\u3000z \u00bd\u00b2":                                 {27, 1429, 29, 462, 220, 220, 13, 220, 1410, 1208, 126, 254, 88, 159, 222, 222, 89, 220, 126, 121, 126, 110},
	"weatherweather THE the theta thetas":                                                   {1310, 1310, 1246, 39, 36, 1042, 1053, 1053, 82},
	" 'tis don't they'll":                                                                   {220, 6, 83, 72, 82, 451, 6, 83, 1051, 6, 75, 75},
	"\n\n\n a":                                                                              {1407, 198, 256},
	"a\n b":                                                                                 {64, 198, 311},
	"</think><think>":                                                                       {1428, 1427},
}
