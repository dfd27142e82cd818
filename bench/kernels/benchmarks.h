#pragma once

namespace tessera {

// Each registers benchmarks with Google Benchmark, before main() runs them.

/// Of operations without matrix products, forward and backward.
void register_operations();
/// Of operations with matrix products.
void register_products();
/// Of the optimizer's passes over the parameters.
void register_optimizer();
/// Of Muon's products and passes.
void register_muon();
/// Of block quantisation, beside copies of memory.
void register_quantisation();
/// Of reading prepared data.
void register_prepared_rows();
/// Of saving by one writer and by several, and of loading a whole and a part.
void register_checkpoints();

}  // namespace tessera
