#pragma once

#include <map>
#include <string>

namespace tessera::testing {

/// A test in the source.
struct NamedTest {
  std::string file;  ///< in tests/
  std::string suite;
  std::string name;
};

/// Operations whose labels do not say it all, and the test of what they do on several ranks. They
/// meet other ranks, change what rows a rank has, or take a part as it is said to lie.
inline const std::map<std::string, NamedTest>& rules_by_hand() {
  static const NamedTest conversions{"ops/collective/convert_test.cpp", "Convert",
                                     "WorksOnEveryAxisOfBothViews"};
  static const NamedTest exchange{"ops/moe_exchange_test.cpp", "ExchangeRows",
                                  "BringsEveryRowToItsExpertInTheOrderOfRanksAndTokens"};
  static const NamedTest flat{"ops/collective/flat_test.cpp", "FlatPiecesOfSums",
                              "HaveTheBitsOfTheWholeSum"};
  static const NamedTest mixture{"model/mixture_mesh_test.cpp", "MixtureOnMeshes",
                                 "EveryTokenAndEveryGradientIsAsOnOneRank"};
  // The machine tries their rule by hand in place of their labels.
  static const NamedTest machine{"ops/labels/labels_test.cpp", "OperationLabels",
                                 "SayWhatTheKernelsDo"};
  static const NamedTest blocks{"ops/muon_mesh_test.cpp", "MuonOfBlocks",
                                "TakesEachRanksPieceForAMatrix"};
  static const NamedTest shared_matrices{"ops/collective/shared_matrices_test.cpp",
                                         "SharedMatrices", "GoToTheirOwnersAndBack"};
  static const NamedTest shared_states{"train/sharded_states_test.cpp", "SharedStates",
                                       "HaveTheBitsOfStatesThatEachRankHas"};
  static const std::map<std::string, NamedTest> tests{
      {"adamw", machine},
      {"all_gather", conversions},
      {"all_reduce", conversions},
      {"copy_kept", machine},
      {"cross", {"ops/collective/cross_test.cpp", "Cross", "LeavesEachRankItsTokens"}},
      {"drop_over_capacity",
       {"ops/moe_exchange_test.cpp", "DropOverCapacity", "OfTheTokensOfEachRankCountsThemAlone"}},
      {"exchange_counts", exchange},
      {"exchange_in_place",
       {"ops/moe_exchange_test.cpp", "ExchangeRows", "OnOneRankTheyAreTheSameMemory"}},
      {"exchange_rows", exchange},
      {"flat_piece", flat},
      {"gather_pieces", flat},
      {"gather_tokens", exchange},
      {"gather_tokens_gradient",
       {"ops/moe_exchange_test.cpp", "ExchangeRows", "GradientsGoTheOtherWay"}},
      {"gather_at_owners", shared_matrices},
      {"linear_cross_entropy",
       {"ops/split_cross_entropy_test.cpp", "SplitCrossEntropy", "IsThatOfOneRank"}},
      {"muon_measures", machine},
      {"muon_measures_of_blocks", blocks},
      {"muon_momentum", machine},
      {"muon_update", machine},
      {"newton_schulz", machine},
      {"newton_schulz_of_blocks", blocks},
      {"zeros", shared_states},
      {"own_piece", conversions},
      {"probability_sums", {"verify/pipelines_test.cpp", "Pipeline", "PoolsTheBalanceOfAllChunks"}},
      {"reduce_experts", mixture},
      {"reduce_experts_gradient", mixture},
      {"return_to_pieces", shared_matrices},
      {"reduce_scatter", conversions},
      {"retype", conversions},
      {"return_rows", {"ops/moe_exchange_test.cpp", "ExchangeRows", "ReturnsWhatWasSent"}},
      {"round_to_weights", machine},
      {"sum_of_squares", machine},
      {"take_piece_of_sum", flat},
      {"take_sum", {"ops/collective/take_sum_test.cpp", "TakeSum", "SumsOverAllAxesAtOnceInPlace"}},
      {"token_counts", exchange},
      {"token_indices", exchange},
      {"view", {"engine/typed_program_test.cpp", "TypedProgram", "PartsOfAUnitHaveTheirTypes"}},
      {"zeros_around", conversions},
  };
  return tests;
}

}  // namespace tessera::testing
