#include <dnnl.hpp>
#include <memory>
#include <unordered_map>

#include "peer_libraries.h"

namespace isoloss::bench {
namespace {

using dnnl::memory;

memory::desc Desc(size_t rows, size_t cols, memory::format_tag tag) {
  return {{static_cast<memory::dim>(rows), static_cast<memory::dim>(cols)},
          memory::data_type::f32,
          tag};
}

/// A primitive, created once, and its arguments.
struct Matmul {
  explicit Matmul(const PeerProduct& p)
      : engine(dnnl::engine::kind::cpu, 0), stream(engine) {
    // W [n, k] row-major is a right side [k, n] with the first index fastest.
    const auto row_major = memory::format_tag::ab;
    const auto x = Desc(p.x.rows(), p.x.cols(), row_major);
    const auto w = Desc(p.w.cols(), p.w.rows(), memory::format_tag::ba);
    const auto y = Desc(p.y.rows(), p.y.cols(), row_major);
    primitive = dnnl::matmul({{x, w, y}, engine});
    arguments = {{DNNL_ARG_SRC, Memory(x, p.x.data())},
                 {DNNL_ARG_WEIGHTS, Memory(w, p.w.data())},
                 {DNNL_ARG_DST, Memory(y, p.y.data())}};
  }

  memory Memory(const memory::desc& desc, const float* values) const {
    return {desc, engine, const_cast<float*>(values)};
  }

  dnnl::engine engine;
  dnnl::stream stream;
  dnnl::matmul primitive;
  std::unordered_map<int, memory> arguments;
};

std::function<void()> Prepare(const PeerProduct& p) {
  return [matmul = std::make_shared<Matmul>(p)] {
    matmul->primitive.execute(matmul->stream, matmul->arguments);
    matmul->stream.wait();
  };
}

const char* IsaName(dnnl::cpu_isa isa) {
  switch (isa) {
    case dnnl::cpu_isa::avx2:
      return "AVX2";
    case dnnl::cpu_isa::avx512_core:
      return "AVX-512";
    case dnnl::cpu_isa::avx512_core_vnni:
      return "AVX-512 VNNI";
    case dnnl::cpu_isa::avx512_core_bf16:
      return "AVX-512 BF16";
    default:
      return "another instruction set";
  }
}

}  // namespace

Peer OneDnn() {
  const dnnl_version_t& v = *dnnl::version();
  return {"onednn",
          std::to_string(v.major) + "." + std::to_string(v.minor) + "." +
              std::to_string(v.patch) + ", " +
              IsaName(dnnl::get_effective_cpu_isa()),
          Prepare};
}

}  // namespace isoloss::bench
