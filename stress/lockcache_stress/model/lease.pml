/* The protocol for SPIN: two processes that want the same key under a lease, one of whom may die at any step, and a
   daemon that recounts. Written for itself, not made from the model in Python, with the names of its steps. */
#define N 2
#define CAP 2
byte page = 0, disk = 0, computed = 0, deaths = 0;
byte lock = N + 1, lease = N + 1;                   /* N + 1: held by nobody */
bool entry = false, dead[N], done[N], staged[N];

#ifdef LEASE_KEPT                                   /* a fault: nobody frees what the dead held */
#define FALL skip
#else
#define FALL if :: lease == me -> lease = N + 1 :: else fi
#endif
#define DIE if :: deaths < 1 -> atomic { deaths++; dead[me] = true; done[me] = true; \
    if :: lock == me -> lock = N + 1 :: else fi; FALL; goto end } :: skip fi
#define TAKE atomic { lock == N + 1 -> lock = me }
#define GIVE atomic { lock = N + 1 }

proctype Worker(byte me) {
    byte seen;
    do
    :: atomic { entry -> goto finish }                                  /* open(entries/SHARD/NAME) */
    :: atomic { !entry && lease == N + 1 -> lease = me }                /* lock_descriptor(leases/NAME) */
       DIE;
       if
       :: entry -> skip                                                 /* access(entries/SHARD/NAME) */
       :: else ->
            computed++;
            DIE; TAKE;
            DIE; staged[me] = true;                                     /* open(tmp/STAGED) */
            DIE; seen = page;                                           /* pread(state) */
            DIE; page = seen + 1;                                       /* pwrite(state) */
            DIE; GIVE;
            DIE; assert(page <= CAP);                                   /* pread(state): there is room */
            disk++;                                                     /* write(tmp/STAGED) */
            DIE; TAKE;
            DIE; atomic { staged[me] = false; entry = true };           /* rename(tmp/STAGED, entries/SHARD/NAME) */
            DIE; GIVE
       fi;
       DIE; lease = N + 1;                                              /* unlink(leases/NAME) */
       goto finish
    od;
finish: done[me] = true;
end: skip
}

proctype Daemon() {
    byte me = N, each, counted;
    TAKE;
    atomic {                                                            /* unlink(tmp/STAGED), pwrite(state) */
        each = 0; counted = 0;
        do
        :: each < N ->
             if
             :: dead[each] && staged[each] -> staged[each] = false; disk = (entry -> 1 : 0)
             :: else
             fi;
             if :: staged[each] -> counted++ :: else fi;
             each++
        :: else -> break
        od;
        page = counted + (entry -> 1 : 0)
    };
    GIVE
}

init { atomic { run Worker(0); run Worker(1); run Daemon() } }

ltl ends { <> (done[0] && done[1]) }
ltl once { [] (deaths > 0 || computed <= 1) }
ltl counted { [] (!entry || page >= 1) }
