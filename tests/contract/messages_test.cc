// What every transport owes when nobody fails: order, matching, sizes, counters.

#include "contract/world.h"

namespace virga::net::contract {
namespace {

class Messages : public Contract {};
INSTANTIATE_TEST_SUITE_P(Every, Messages, kEveryKind, kind_name);

Task<void> send_one(Transport& transport, Rank to, Header header, std::vector<std::byte> data) {
  co_await finish_soon(transport, transport.send(to, header, buffer_of(std::as_const(data))));
}

Task<void> expect_one(Transport& transport, Rank from, Header header, std::vector<std::byte> wanted) {
  std::vector<std::byte> data(wanted.size(), std::byte{0xee});
  co_await finish_soon(transport, transport.receive(from, header, buffer_of(data)), 20s);
  EXPECT_TRUE(data == wanted) << wanted.size() << " bytes from rank " << from;
}

// Every ordered pair of ranks, the rank itself included, in all sizes around the thresholds of
// protocols.
Task<void> all_pairs(Transport& transport, size_t bytes) {
  std::vector<Task<void>> tasks;
  const Rank me = transport.rank();
  for (Rank peer = 0; peer < transport.world_size(); ++peer) {
    tasks.push_back(expect_one(transport, peer, header_of(bytes, 0, peer), pattern(bytes, peer * 10 + me)));
    tasks.push_back(send_one(transport, peer, header_of(bytes, 0, me), pattern(bytes, me * 10 + peer)));
  }
  co_await when_all(std::move(tasks));
}

TEST_P(Messages, ReachEveryRankInEverySize) {
  const auto world = GetParam().make();
  for (size_t bytes : {0u, 1u, 63u, 4096u, 8200u, 65'537u, 1'000'003u}) {
    world->run([bytes](Transport& transport) { return all_pairs(transport, bytes); });
  }
}

// A receive with a use hands over what came, early or late, and in the way of every protocol.
TEST_P(Messages, AreUsedInsteadOfCopied) {
  const auto world = GetParam().make();
  OpNumber operation = 0;
  for (const bool receive_first : {true, false}) {
    for (size_t bytes : {0u, 8u, 8200u, 61'440u, 65'537u, 20'000'003u}) {
      for (Rank to = 0; to < world->size(); ++to) {
        const Header header = header_of(++operation, 0, 0);
        const auto data = pattern(bytes, to);
        std::vector<std::byte> room(bytes), used(bytes, std::byte{0xee});
        int uses = 0;
        const auto use = [&](ConstBuffer payload) {
          EXPECT_EQ(reinterpret_cast<uintptr_t>(payload.data) % 8, 0u);
          std::copy_n(payload.data, payload.bytes, used.data());
          ++uses;
        };
        const auto receive = [&] { return world->at(to).receive(0, header, buffer_of(room), use); };
        TransferPtr early = receive_first ? receive() : nullptr;
        TransferPtr send = world->at(0).send(to, header, buffer_of(data));
        if (!receive_first && bytes < 1'000'000) world->run(finish_soon(world->at(0), send, 20s));
        TransferPtr in = receive_first ? early : receive();
        world->run(when_both(finish_soon(world->at(0), send, 20s), finish_soon(world->at(to), in, 20s)));
        EXPECT_EQ(uses, 1) << bytes;
        EXPECT_TRUE(used == data) << bytes << " bytes to rank " << to;
      }
    }
  }
}

TEST_P(Messages, Of64MegabytesArriveWhole) {
  const auto world = GetParam().make();
  const auto data = pattern(64 << 20, 7);
  world->run(when_both(send_one(world->at(0), 2, header_of(1, 0, 0), data),
                       expect_one(world->at(2), 0, header_of(1, 0, 0), data)));
}

// Sizes alternate so that short messages could overtake long ones.
TEST_P(Messages, OfOneAddressMatchInTheOrderSent) {
  const auto world = GetParam().make();
  for (const bool receive_first : {true, false}) {
    std::vector<Task<void>> sends, receives;
    const OpNumber operation = receive_first ? 1 : 2;
    for (int i = 0; i < 50; ++i) {
      const size_t bytes = i % 3 == 0 ? 300'000 : 8;
      sends.push_back(send_one(world->at(0), 2, header_of(operation, 0, 0), pattern(bytes, i)));
      receives.push_back(expect_one(world->at(2), 0, header_of(operation, 0, 0), pattern(bytes, i)));
    }
    Task<void> first = when_all(std::move(receive_first ? receives : sends));
    Task<void> second = when_all(std::move(receive_first ? sends : receives));
    world->run(when_both(std::move(first), std::move(second)));
  }
}

TEST_P(Messages, AreMatchedByChunkWhateverTheOrder) {
  const auto world = GetParam().make();
  std::vector<Task<void>> tasks;
  for (int i = 0; i < 20; ++i) {
    const size_t bytes = i % 2 ? 200'000 : 100;
    tasks.push_back(send_one(world->at(1), 2, header_of(1, i, 1), pattern(bytes, i)));
  }
  for (int i = 19; i >= 0; --i) {
    const size_t bytes = i % 2 ? 200'000 : 100;
    tasks.push_back(expect_one(world->at(2), 1, header_of(1, i, 1), pattern(bytes, i)));
  }
  world->run(when_all(std::move(tasks)));
}

TEST_P(Messages, ThatComeEarlyWait) {
  const auto world = GetParam().make();
  std::vector<TransferPtr> sends;
  std::vector<std::vector<std::byte>> data;
  for (size_t bytes : {0u, 16u, 20'000u, 2'000'000u}) {
    data.push_back(pattern(bytes, bytes));
    sends.push_back(world->at(0).send(2, header_of(bytes, 0, 0), buffer_of(std::as_const(data.back()))));
  }
  world->pass(100ms);
  std::vector<Task<void>> tasks;
  for (const auto& wanted : data) {
    tasks.push_back(expect_one(world->at(2), 0, header_of(wanted.size(), 0, 0), wanted));
  }
  for (const auto& send : sends) tasks.push_back(finish_soon(world->at(0), send));
  world->run(when_all(std::move(tasks)));
}

TEST_P(Messages, ByTheThousandsAtOnce) {
  const auto world = GetParam().make();
  constexpr int kCount = 10'000;
  world->run([](Transport& transport) -> Task<void> {
    const Rank me = transport.rank();
    const Rank next = (me + 1) % transport.world_size();
    const Rank last = (me + transport.world_size() - 1) % transport.world_size();
    std::vector<uint64_t> out(kCount), in(kCount, ~0ull);
    std::vector<TransferPtr> transfers;
    for (int i = 0; i < kCount; ++i) {
      out[i] = static_cast<uint64_t>(me) << 32 | i;
      transfers.push_back(transport.receive(last, header_of(1, i, last), {reinterpret_cast<std::byte*>(&in[i]), 8}));
      transfers.push_back(transport.send(next, header_of(1, i, me), {reinterpret_cast<std::byte*>(&out[i]), 8}));
    }
    for (const TransferPtr& transfer : transfers) co_await finish_soon(transport, transfer, 20s);
    for (int i = 0; i < kCount; ++i) {
      if (in[i] != (static_cast<uint64_t>(last) << 32 | i)) fail(ErrorCode::kCorrupt, "message {} is wrong", i);
    }
  });
}

TEST_P(Messages, AreCountedExactly) {
  const auto world = GetParam().make();
  std::vector<Task<void>> tasks;
  uint64_t bytes = 0;
  for (int i = 0; i < 9; ++i) {
    const size_t size = static_cast<size_t>(i) * i * 7919;
    tasks.push_back(send_one(world->at(2), 0, header_of(1, i, 2), pattern(size, i)));
    tasks.push_back(expect_one(world->at(0), 2, header_of(1, i, 2), pattern(size, i)));
    bytes += size;
  }
  world->run(when_all(std::move(tasks)));
  const Traffic out = world->at(2).traffic(0), in = world->at(0).traffic(2), none = world->at(1).traffic(0);
  EXPECT_EQ(out.bytes_sent, bytes);
  EXPECT_EQ(out.messages_sent, 9u);
  EXPECT_EQ(out.bytes_received, 0u);
  EXPECT_EQ(in.bytes_received, bytes);
  EXPECT_EQ(in.messages_received, 9u);
  EXPECT_EQ(in.bytes_sent, 0u);
  EXPECT_EQ(none.messages_sent + none.messages_received, 0u);
}

}  // namespace
}  // namespace virga::net::contract
