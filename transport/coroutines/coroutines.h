// Coroutines on a shard: code with co_await, over the callbacks that the rest of Bedplate has.
//
//     class Echo final : public CoroutineSession {
//       Coroutine<> serve() noexcept override {
//         for (;;) {
//           const std::string_view text = co_await line();
//           if (text.empty()) co_return;
//           co_await say(text);
//         }
//       }
//     };
//
// An optional layer: programs that want it include this header. Callbacks stay the ground, and cost
// less. Frames come from planned memory (coroutine_frames.h); nothing else is allocated.
//
// A coroutine begins in one of three ways: as serve() of a session, when its peer's first bytes
// have come; by start_coroutine(), and then nobody waits for its end; or by the co_await of another
// coroutine, which gets its result. A chain of coroutines that wait for one another runs until the
// innermost one waits:
//
//     line(), bytes(), fill(), say(), lend()    for its connection      coroutine_session.h
//     ask(asker, loop, function)                for another shard       coroutine_waits.h
//     read_from(), write_to(), carry_out()      for a file
//     after(ns)                                 for a timer
//     send_message(), complete()                for a peer's queue
//     a CoroutineEvent                          for any other callback  coroutine.h
//
// Each wait ends by a callback on the shard, never within the call that begins it. The callback
// resumes the innermost coroutine; that of a session goes on when its connection has room.
//
// Rules, which every build checks: 1. A coroutine is awaited once. 2. It is not destroyed before
// its end: it goes on, even if its peer has gone. 3. It runs on the shard of its frames alone. 4.
// No exception leaves it. When the shards stop, coroutines that wait are neither resumed nor
// destroyed.
//
// A coroutine copies its parameters, but not what they refer to: give it values, and references to
// things that outlive it. A lambda that is a coroutine has no captures, since those go with it.
//
// g++ 12 destroys a temporary twice if it is an aggregate in braces, or a lambda with captures,
// that owns something (a string), and is made within a co_await expression. Give it a name before.
#pragma once

#include "transport/coroutines/coroutine.h"
#include "transport/coroutines/coroutine_session.h"
#include "transport/coroutines/coroutine_waits.h"
