#pragma once

#include <cstddef>
#include <set>

namespace tessera::testing {

// Programs of tests/fixtures/distribution, by number, that hold an operation which the fixture's
// implementation accepts and ours refuses.
//
// Its pieces are of labels. Ours are of dims, of which a rank has elements. Of heads x channels, a
// piece that is not of consecutive elements may be two halves of heads, and sizes in elements of
// the dim are not sizes in heads. So ours refuse these, unless an operand tells the extents: that
// is known of no program here, as its values have no extents.

/// Pieces in zigzag of a label that has others inside it.
inline const std::set<size_t> programs_that_may_cut_elements{
    7,    20,   21,   78,   80,   90,   100,  112,  126,  139,  151,  152,  165,  168,  174,
    184,  186,  196,  206,  210,  215,  232,  239,  246,  251,  254,  255,  269,  299,  311,
    316,  321,  330,  331,  333,  345,  351,  359,  367,  380,  381,  390,  393,  398,  429,
    447,  450,  453,  457,  467,  469,  473,  481,  490,  495,  503,  531,  551,  570,  595,
    600,  607,  633,  636,  642,  656,  676,  699,  712,  719,  750,  757,  766,  776,  782,
    783,  802,  807,  826,  828,  836,  837,  854,  862,  864,  872,  874,  888,  914,  917,
    926,  938,  948,  971,  974,  975,  978,  986,  1010, 1041, 1082, 1094, 1096, 1105, 1121,
    1142, 1151, 1173, 1176, 1181, 1189, 1195, 1207, 1213, 1217, 1233, 1235, 1237, 1239, 1243,
    1244, 1261, 1305, 1306, 1311, 1332, 1356, 1361, 1383, 1384, 1396, 1404, 1419, 1425, 1481};

/// Uneven pieces that pass between dims in which a label has other labels inside it.
inline const std::set<size_t> programs_with_unknown_sizes{
    27,   52,   58,   69,   71,   90,   91,   98,   116,  156,  172,  179,  180,  202,  205,  223,
    241,  252,  275,  289,  299,  325,  335,  338,  366,  392,  405,  410,  413,  417,  442,  454,
    498,  522,  528,  550,  553,  565,  567,  591,  599,  617,  659,  678,  707,  708,  758,  759,
    761,  766,  777,  835,  853,  910,  912,  919,  945,  946,  948,  966,  977,  985,  988,  1005,
    1023, 1060, 1076, 1077, 1087, 1098, 1126, 1127, 1153, 1166, 1168, 1182, 1183, 1240, 1257, 1259,
    1269, 1283, 1288, 1310, 1325, 1345, 1351, 1391, 1392, 1394, 1414, 1417, 1418, 1462, 1469};

}  // namespace tessera::testing
